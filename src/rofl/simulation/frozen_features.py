"""Features of a frozen network, computed once; clients then train the last layer on them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.data.image_store import ImageStore
from rofl.data.transforms import Identity, Transform
from rofl.methods.base import Method, ServerState
from rofl.methods.weights import model_weights
from rofl.simulation.client import ClientConfig
from rofl.simulation.engine import parse_predictions, predict_jobs
from rofl.simulation.executor import PREDICTION_CHUNK, flatten_state, predict_job, shared_inputs
from rofl.simulation.network_spec import NetworkSpec
from rofl.simulation.worker_pool import WorkerPool


@dataclass(frozen=True)
class ClientInputs:
    """The inputs and the network of the clients.

    Attributes:
        train: the training samples: images, or features (N, d, 1, 1) of a frozen network.
        test: the test samples.
        transform: from samples to inputs of the network.
        network: the trained network: the whole, or the last layer.
    """

    train: ImageStore
    test: ImageStore
    transform: Transform
    network: NetworkSpec


def frozen_inputs(inputs: ClientInputs, groups: Sequence[Tensor], method: Method, workers: int) -> ClientInputs:
    """Return the features of a frozen network in place of images, and its last layer in place of the network.

    Each client's samples are predicted separately, in the chunks of a run, so the bits are the same at a site and for
    any number of workers. There is no augmentation.

    Args:
        inputs: images and the whole network.
        groups: the rows of each client; a row may be in none.
        method: the method of the run, for the worker processes.
        workers: worker processes; 0 for the calling process.
    """
    network = inputs.network
    net = network.build_base()
    count, rows = len(inputs.train), torch.cat([torch.empty(0, dtype=torch.long), *groups])
    left = torch.ones(count, dtype=torch.bool)
    left[rows] = False
    rest = left.nonzero().flatten()  # of no client; only audits need them
    rows, sizes = torch.cat([rows, rest]), [*map(len, groups), len(rest)]
    data = shared_inputs(inputs.train, inputs.test, torch.zeros(count, dtype=torch.long), [rest], rows)
    config = ClientConfig(method, network.whole(), inputs.transform, network.seed)
    pool = WorkerPool(workers, config, data, flatten_state(ServerState(model_weights(net))))
    try:
        train = torch.empty(count, net.feature_size)
        if count:
            train[rows] = parse_predictions(pool.run(_group_jobs(sizes)))[1]
        test = torch.empty(0, net.feature_size)
        if len(inputs.test):
            test = parse_predictions(pool.run(predict_jobs("test", len(inputs.test))))[1]
    finally:
        pool.close()
    features = (train[:, :, None, None], test[:, :, None, None])
    return ClientInputs(*features, Identity((), ()), network.last_layer(net.feature_size))


def _group_jobs(sizes: Sequence[int]) -> Iterator[bytes]:
    """Yield the jobs that predict each client's rows, which follow one another in `validation`."""
    first = 0
    for size in sizes:
        for start in range(first, first + size, PREDICTION_CHUNK):
            yield predict_job("validation", start, min(start + PREDICTION_CHUNK, first + size))
        first += size
