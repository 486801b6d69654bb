"""A seat at which clients run one after the other: in a worker process, or in the calling one."""

import traceback
from collections.abc import Sequence
from dataclasses import replace

import torch

from rofl.core.tensors import CPU, Tensors, moved
from rofl.data import Shard
from rofl.data.parts import rows_of
from rofl.data.parts import to_tensors as parts_to_tensors
from rofl.data.stream import Pixels, from_tensors, on_device, part, to_tensors
from rofl.engines.client import Task, one_thread, run_client
from rofl.engines.records import pack, unpack
from rofl.methods.base import Global, Round
from rofl.methods.training import load_weights, predict


def train_job(index: int, client: int, state: Tensors) -> bytes:
    """Ask a seat to train a client in round `index`."""
    return pack({"state": state}, {"kind": "train", "round": index, "client": client})


def predict_job(part: str, start: int, stop: int) -> bytes:
    """Ask a seat for the global model's logits and features of some images of `train` or `test`."""
    return pack({}, {"kind": "predict", "part": part, "start": start, "stop": stop})


class Bench:
    """Does jobs on shared data and shared global weights, on one device; bytes in, bytes out."""

    def __init__(self, task: Task, data: Tensors, broadcast: Tensors, device: torch.device = CPU) -> None:
        self.task, self.device = task, device
        self.data = data  # train, test, labels, and whose rows are whose: see `lay_out`
        self.pixels = {name: on_device(from_tensors(name, data), device) for name in ("train", "test")}
        self.labels = data["labels"].to(device)
        self.broadcast = broadcast  # model/..., extra/...: changed in place between rounds
        self.net = replace(task.network, weights="").build().to(device)  # the broadcast ones take their place

    def do(self, job: bytes) -> bytes:
        """The answer to a job; an exception becomes an answer too."""
        groups, facts = unpack(job)
        try:
            if facts["kind"] == "train":
                return self._train(facts["round"], facts["client"], groups["state"])
            return self._predict(facts["part"], facts["start"], facts["stop"])
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
            return pack({}, {"error": f"{type(error).__name__}: {error} ({where})"})

    def _train(self, index: int, client: int, state: Tensors) -> bytes:
        rnd = Round(index, self.task.seed, client)
        state = moved(state, self.device)
        update, state = run_client(self.task.method, self.net, self._global(), state, self._shard(client), rnd)
        return pack(
            {"model": update.model, "extra": update.extra, "state": state},
            {"weight": update.weight, "metrics": dict(update.metrics)},
        )

    def _predict(self, name: str, start: int, stop: int) -> bytes:
        with one_thread():
            load_weights(self.net, self._global().model)
            logits, features = predict(self.net, part(self.pixels[name], slice(start, stop)), self.task.transform)
        return pack({"prediction": {"logits": logits, "features": features}}, {})

    def _global(self) -> Global:
        return split_global(moved(self.broadcast, self.device))

    def _shard(self, client: int) -> Shard:
        rows = rows_of(client, self.data).to(self.device)
        return Shard(self.pixels["train"], rows, self.labels[rows], self.task.network.classes, self.task.transform)


def join_global(glob: Global) -> Tensors:
    """Both groups of a global state under one roof, for the shared memory."""
    groups = {"model": glob.model, "extra": glob.extra}
    return {f"{group}/{name}": value for group, named in groups.items() for name, value in named.items()}


def split_global(joined: Tensors) -> Global:
    """The inverse of `join_global`, on the same memory."""
    groups: dict[str, Tensors] = {"model": {}, "extra": {}}
    for name, value in joined.items():
        group, _, rest = name.partition("/")
        groups[group][rest] = value
    return Global(**groups)


def lay_out(train: Pixels, test: Pixels, labels: torch.Tensor, parts: Sequence[torch.Tensor]) -> Tensors:
    """The tensors every seat needs: all pixels or where they lie, the given labels, and whose rows are whose."""
    pixels = {**to_tensors("train", train), **to_tensors("test", test)}
    return {**pixels, "labels": labels, **parts_to_tensors(parts)}
