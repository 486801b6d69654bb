"""A seat at which clients run one after the other: in a worker process, or in the calling one."""

import traceback
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import CPU, Tensors, to_device
from rofl.data import ClientDataset
from rofl.data.image_store import ImageStore, slice_images, store_from_tensors, store_to_device, store_to_tensors
from rofl.data.sampled_clients import client_rows
from rofl.data.sampled_clients import partition_to_tensors as parts_to_tensors
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.inference import predict
from rofl.methods.weights import load_weights
from rofl.simulation.client import ClientConfig, run_client, single_thread

PREDICTION_CHUNK = 500  # images per prediction: fixed, so that bits do not depend on the number of workers


def train_job(index: int, client: int, state: Tensors) -> bytes:
    """Ask a seat to train a client in round `index`."""
    return serialize({"state": state}, {"kind": "train", "round": index, "client": client})


def predict_job(part: str, start: int, stop: int) -> bytes:
    """Ask a seat for the global model's logits and features of some images of `train` or `test`."""
    return serialize({}, {"kind": "predict", "part": part, "start": start, "stop": stop})


class ClientExecutor:
    """Does jobs on shared data and shared global weights, on one device; bytes in, bytes out."""

    def __init__(self, task: ClientConfig, data: Tensors, broadcast: Tensors, device: torch.device = CPU) -> None:
        self.task, self.device = task, device
        self.data = data  # train, test, labels, and whose rows are whose: see `lay_out`
        self.pixels = {name: store_to_device(store_from_tensors(name, data), device) for name in ("train", "test")}
        self.labels = data["labels"].to(device)
        self.broadcast = broadcast  # model/..., aux/...: changed in place between rounds
        self.net = replace(task.network, weights="").build().to(device)  # the broadcast ones take their place

    def do(self, job: bytes) -> bytes:
        """The answer to a job; an exception becomes an answer too."""
        groups, facts = deserialize(job)
        try:
            if facts["kind"] == "train":
                update, state = self.train(facts["round"], facts["client"], groups["state"])
                return serialize(
                    {"model": update.model, "aux": update.aux, "state": state},
                    {"weight": update.weight, "metrics": dict(update.metrics)},
                )
            logits, features = self.predict(facts["part"], facts["start"], facts["stop"])
            return serialize({"prediction": {"logits": logits, "features": features}}, {})
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
            return serialize({}, {"error": f"{type(error).__name__}: {error} ({where})"})

    def train(self, index: int, client: int, state: Tensors) -> tuple[Update, Tensors]:
        """Train a client from the broadcast state; return its update and its next state, on the executor's device.

        Args:
            index: The round, counted from 1.
            client: The client's number.
            state: The client state that an earlier round left; {} where there is none.
        """
        ctx = RoundContext(index, self.task.seed, client)
        state = to_device(state, self.device)
        return run_client(self.task.method, self.net, self._global(), state, self._shard(client), ctx)

    def predict(self, part: str, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the broadcast model's logits (n, K) and features (n, d) of images `start` to `stop` of a part.

        Args:
            part: "train" or "test".
            start: The first image.
            stop: The image after the last.
        """
        with single_thread():
            load_weights(self.net, self._global().model)
            return predict(self.net, slice_images(self.pixels[part], slice(start, stop)), self.task.transform)

    def predict_all(self, part: str, count: int) -> tuple[Tensor, Tensor]:
        """Return logits and features of the first `count` images of a part, on the CPU; the bits are those of a run."""
        chunks = [
            self.predict(part, start, min(start + PREDICTION_CHUNK, count))
            for start in range(0, count, PREDICTION_CHUNK)
        ]
        logits, features = zip(*chunks, strict=True)
        return torch.cat(logits).cpu(), torch.cat(features).cpu()

    def _global(self) -> ServerState:
        return unflatten_state(to_device(self.broadcast, self.device))

    def _shard(self, client: int) -> ClientDataset:
        rows = client_rows(client, self.data).to(self.device)
        return ClientDataset(
            self.pixels["train"], rows, self.labels[rows], self.task.network.classes, self.task.transform
        )


def flatten_state(server_state: ServerState) -> Tensors:
    """Both groups of a global state under one roof, for the shared memory."""
    groups = {"model": server_state.model, "aux": server_state.aux}
    return {f"{group}/{name}": value for group, named in groups.items() for name, value in named.items()}


def unflatten_state(joined: Tensors) -> ServerState:
    """The inverse of `join_global`, on the same memory."""
    groups: dict[str, Tensors] = {"model": {}, "aux": {}}
    for name, value in joined.items():
        group, _, rest = name.partition("/")
        groups[group][rest] = value
    return ServerState(**groups)


def shared_inputs(train: ImageStore, test: ImageStore, labels: torch.Tensor, parts: Sequence[torch.Tensor]) -> Tensors:
    """The tensors every seat needs: all pixels or where they lie, the given labels, and whose rows are whose."""
    pixels = {**store_to_tensors("train", train), **store_to_tensors("test", test)}
    return {**pixels, "labels": labels, **parts_to_tensors(parts)}
