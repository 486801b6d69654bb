"""A small world: four classes of 8 x 8 images that a tiny network learns, and clients that lack some of them."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from rofl.core.rng import generator
from rofl.core.tensors import Tensors, digest
from rofl.data import ClientDataset, Transform, batches
from rofl.methods import METHODS, Method, RoundContext, ServerState, Update
from rofl.models import Network
from rofl.simulation.client import run_client
from rofl.simulation.network_spec import NetworkSpec

CLASSES, SHAPE, SEED = 4, (1, 8, 8), 7
TRANSFORM = Transform(mean=(0.5,), std=(0.3,), crop=1)
SPREAD = 90  # how far the images of a class differ, in grey levels

_SETTINGS = {"lr": 0.25, "batch": 8, "epochs": 2, "tau": 0.3, "t_pl": 2}


def pixels(count: int = 96) -> tuple[Tensor, Tensor]:
    """Images (n, 1, 8, 8) as disturbed copies of one pattern per class, and their classes 0, 1, 2, 3, 0, ..."""
    rng = generator(SEED, "pixels")
    patterns = torch.randint(0, 256, (CLASSES, *SHAPE), generator=rng)
    classes = torch.arange(count) % CLASSES
    disturbed = patterns[classes] + torch.randint(-SPREAD, SPREAD + 1, (count, *SHAPE), generator=rng)
    return disturbed.clamp(0, 255).to(torch.uint8), classes


def client_data(rows: Any, labels: Any = None) -> ClientDataset:
    """A client that holds these rows, with their true labels where no others are given."""
    images, classes = pixels()
    rows = torch.as_tensor(rows)
    given = classes[rows] if labels is None else torch.as_tensor(labels)
    return ClientDataset(images, rows, given, CLASSES, TRANSFORM)


def noisy(rows: Any, ratio: float = 0.3) -> ClientDataset:
    """A client some of whose labels are the next class instead."""
    clean = client_data(rows)
    wrong = torch.rand(len(clean), generator=generator(SEED, "noise")) < ratio
    return client_data(rows, torch.where(wrong, (clean.labels + 1) % CLASSES, clean.labels))


def clients() -> dict[str, ClientDataset]:
    """Ordinary and awkward ones."""
    return {
        "all classes, some labels wrong": noisy(range(24)),
        "two classes are missing": noisy([row for row in range(24, 72) if row % CLASSES < 2], ratio=0.0),
        "one class only": client_data(range(75, 96, CLASSES)),
        "one sample only": client_data([72]),
        "two samples": client_data([73, 74]),
    }


def network(name: str = "small", width: float = 0.25, seed: int = SEED) -> Network:
    """A network with its initial weights."""
    return NetworkSpec(name, SHAPE, CLASSES, width, seed).build()


def build(name: str, **settings: Any) -> Method:
    """A method by name with quick settings, as far as it has them."""
    kind = METHODS[name]
    own = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in {**_SETTINGS, **settings}.items() if key in own})


def train(
    method: Method,
    server_state: ServerState,
    data: ClientDataset,
    index: int,
    client: int = 0,
    net: Network | None = None,
) -> Update:
    """One client's update in round `index`."""
    return run_client(method, net or network(), server_state, {}, data, RoundContext(index, SEED, client))[0]


def play(
    method: Method, shards: list[ClientDataset], rounds: int, net: Network | None = None, seed: int = SEED
) -> ServerState:
    """Some rounds with all clients, as plain as can be."""
    net = net or network()
    server_state, states = method.init(net), [dict[str, Tensor]() for _ in shards]
    for index in range(1, rounds + 1):
        total = method.zero_update(server_state)
        for client, data in enumerate(shards):
            update, states[client] = run_client(
                method, net, server_state, states[client], data, RoundContext(index, seed, client)
            )
            total = total + update
        server_state = method.server_update(server_state, total, RoundContext(index, seed))
    return server_state


def drawn_epochs(method: Any, data: ClientDataset, ctx: RoundContext) -> list[list[tuple[list[int], Tensor]]]:
    """The mini-batches that the method draws in this round, for its slow twin: rows and augmented images."""
    order, augment = ctx.rng("batches"), ctx.rng("augment")
    return [
        [(rows.tolist(), data.inputs(rows, augment)) for rows in batches(len(data), method.batch, order)]
        for _ in range(method.epochs)
    ]


def assert_same_change(found: Tensors, after: Tensors, before: Tensors, samples: int) -> None:
    """That an update is what a slow twin's weights say: n_k * (w_k - w)."""
    assert found.keys() == before.keys()
    for key, value in before.items():
        expected = samples * (after[key] - value)
        torch.testing.assert_close(
            found[key], expected, rtol=2e-3, atol=2e-3, msg=lambda text, key=key: f"{key}: {text}"
        )


def bits(update: Update, state: Tensors | None = None) -> tuple[Any, ...]:
    """All of an update, comparable: equal means equal to the last bit."""
    return digest(update.model), digest(update.aux), digest(state or {}), update.weight, dict(update.metrics)
