"""Executes jobs one by one, bytes in and bytes out, in a worker process or in the calling process."""

import traceback
from collections.abc import Sequence

import torch
from torch import Tensor

from rofl.core.rng import single_thread
from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import CPU, Tensors, to_device
from rofl.data import ClientDataset
from rofl.data.client_dataset import client_rows, partition_to_tensors
from rofl.data.image_store import (
    ImageStore,
    gather,
    slice_images,
    store_from_tensors,
    store_to_device,
    store_to_tensors,
)
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.inference import predict
from rofl.methods.weights import load_weights
from rofl.simulation.client import ClientConfig, run_client

PREDICTION_CHUNK = 500  # images per prediction: fixed, so that bits do not depend on the number of workers


def train_job(index: int, client: int, state: Tensors, cautious: bool = False) -> bytes:
    """Return a job that trains a client.

    Args:
        index: the round.
        client: the client's number.
        state: the client's state after its last round.
        cautious: whether to use the cautious form of the method.
    """
    return serialize({"state": state}, {"kind": "train", "round": index, "client": client, "cautious": cautious})


def predict_job(part: str, start: int, stop: int) -> bytes:
    """Return a job that computes the global model's logits and features.

    Args:
        part: `train`, `test` or `validation`.
        start: the first image.
        stop: the image after the last one.
    """
    return serialize({}, {"kind": "predict", "part": part, "start": start, "stop": stop})


class ClientExecutor:
    """Executes jobs on shared data and a shared server state, on one device.

    Args:
        config: method, network, transform and seed.
        data: the result of `shared_inputs`, possibly in shared memory.
        broadcast: the server state, as `flatten_state` returned it; the parent changes it in place between rounds.
        device: where clients train.
    """

    def __init__(self, config: ClientConfig, data: Tensors, broadcast: Tensors, device: torch.device = CPU) -> None:
        self.config, self.device = config, device
        self.data = data
        self.pixels = {name: store_to_device(store_from_tensors(name, data), device) for name in ("train", "test")}
        self.labels = data["labels"].to(device)
        self.broadcast = broadcast
        self.net = config.network.without_weights().build().to(device)  # the broadcast weights replace its own

    def execute(self, job: bytes) -> bytes:
        """Return the result of a job; an exception becomes a result with `error`, which names the line that raised."""
        groups, fields = deserialize(job)
        try:
            if fields["kind"] == "train":
                update, state = self.train(fields["round"], fields["client"], groups["state"], fields["cautious"])
                return serialize(
                    {"model": update.model, "aux": update.aux, "state": state},
                    {"weight": update.weight, "metrics": dict(update.metrics)},
                )
            logits, features = self.predict(fields["part"], fields["start"], fields["stop"])
            return serialize({"prediction": {"logits": logits, "features": features}}, {})
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
            return serialize({}, {"error": f"{type(error).__name__}: {error} ({where})"})

    def train(self, index: int, client: int, state: Tensors, cautious: bool = False) -> tuple[Update, Tensors]:
        """Train a client from the broadcast state; return its update and its next state, on the executor's device.

        Args:
            index: the round, counted from 1.
            client: the client's number.
            state: the client's state after its last round; {} if it has none.
            cautious: whether to use the cautious form of the method.
        """
        method = self.config.method.cautious() if cautious else self.config.method
        ctx = RoundContext(index, self.config.seed, client)
        state, data = to_device(state, self.device), self._client_dataset(client)
        return run_client(method, self.net, self._server_state(), state, data, ctx)

    def predict(self, part: str, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the broadcast model's logits (n, K) and features (n, d) of some images.

        Args:
            part: `train`, `test`, or `validation`, the held-out rows of `train`.
            start: the first image.
            stop: the image after the last one.
        """
        with single_thread():
            load_weights(self.net, self._server_state().model)
            if part == "validation":
                images: ImageStore = gather(self.pixels["train"], self.data[part][start:stop].to(self.device))
            else:
                images = slice_images(self.pixels[part], slice(start, stop))
            return predict(self.net, images, self.config.transform)

    def predict_all(self, part: str, count: int) -> tuple[Tensor, Tensor]:
        """Return logits and features of the first `count` images of a part, on the CPU; the same bits as in a run."""
        starts = range(0, count, PREDICTION_CHUNK)
        chunks = [self.predict(part, start, min(start + PREDICTION_CHUNK, count)) for start in starts]
        logits, features = zip(*chunks, strict=True)
        return torch.cat(logits).cpu(), torch.cat(features).cpu()

    def _server_state(self) -> ServerState:
        return unflatten_state(to_device(self.broadcast, self.device))

    def _client_dataset(self, client: int) -> ClientDataset:
        rows = client_rows(client, self.data).to(self.device)
        config = self.config
        return ClientDataset(self.pixels["train"], rows, self.labels[rows], config.network.classes, config.transform)


def flatten_state(server_state: ServerState) -> Tensors:
    """Return a server state as one dict, with names `model/...` and `aux/...`, for the shared memory."""
    groups = {"model": server_state.model, "aux": server_state.aux}
    return {f"{group}/{name}": value for group, tensors in groups.items() for name, value in tensors.items()}


def unflatten_state(tensors: Tensors) -> ServerState:
    """Return the server state that `flatten_state` was given, on the same memory."""
    groups: dict[str, Tensors] = {"model": {}, "aux": {}}
    for key, value in tensors.items():
        group, _, name = key.partition("/")
        groups[group][name] = value
    return ServerState(**groups)


def shared_inputs(
    train: ImageStore,
    test: ImageStore,
    labels: torch.Tensor,
    parts: Sequence[torch.Tensor],
    validation: torch.Tensor | None = None,
) -> Tensors:
    """Return the tensors that every executor needs.

    Args:
        train: the training images, in memory or in files.
        test: the test images.
        labels: (n,) the given labels of `train`.
        parts: the rows of each client.
        validation: (V,) held-out rows of `train`.
    """
    pixels = {**store_to_tensors("train", train), **store_to_tensors("test", test)}
    held_out = {} if validation is None or not len(validation) else {"validation": validation}
    return {**pixels, "labels": labels, **partition_to_tensors(parts), **held_out}
