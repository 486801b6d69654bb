"""The loop that we compare ourselves with is no straw man: it learns, and does what our own method does."""

import pytest
import torch
from benchmarks.speed.naive_loop import ClientData, federated_round

from rofl.core.rng import generator, seeded
from rofl.data import ClientDataset, Transform
from rofl.methods import Rofl
from rofl.methods.base import RoundContext
from rofl.methods.weights import load_weights
from rofl.models import Network, build

MEAN, STD = 0.3, 0.4
CLASSES, SIDE = 4, 8


def pictures(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A bright quarter for each class, on noise."""
    rng = generator(seed, "pictures")
    labels = torch.randint(0, CLASSES, (count,), generator=rng)
    pixels = torch.randint(0, 120, (count, 1, SIDE, SIDE), dtype=torch.uint8, generator=rng)
    for image, label in zip(pixels, labels.tolist(), strict=True):
        top, left = 4 * (label // 2), 4 * (label % 2)
        image[:, top : top + 4, left : left + 4] += 100
    return pixels, labels


def clients(crop: int) -> list[ClientData]:
    pixels, labels = pictures(120, seed=0)
    return [
        ClientData(*part, MEAN, STD, crop) for part in zip(pixels.split([80, 40]), labels.split([80, 40]), strict=True)
    ]


def network() -> Network:
    return build("small", (1, SIDE, SIDE), CLASSES, 0.25, seed=0)


def test_it_learns() -> None:
    net, centroids = network(), torch.zeros(CLASSES, network().feature_size)
    method = Rofl(tau=0.2, t_pl=3, lr=0.1, batch=20, epochs=2)
    losses = []
    with seeded(0):
        for index in range(1, 7):
            centroids, loss = federated_round(net, centroids, clients(crop=1), method, index)
            losses.append(loss)
    assert losses[-1] < losses[0] / 2
    assert centroids.isfinite().all()
    assert centroids.any(dim=1).all()
    pixels, labels = pictures(200, seed=1)
    with torch.no_grad():
        logits, _ = net.eval()(Transform((MEAN,), (STD,))(pixels))
    assert (logits.argmax(dim=1) == labels).float().mean() > 0.9


@pytest.mark.parametrize("t_pl", [1, 9])
def test_it_does_what_rofl_does(t_pl: int) -> None:
    """With whole shards as batches and no augmentation only the order is drawn, so that both come to the same.

    Two epochs: with more, a sample on the border of a mask may fall to either side by rounding.
    """
    method = Rofl(tau=0.4, t_pl=t_pl, cen_start=0.0, cen_rise=0.0, lr=0.1, batch=200, epochs=2)
    ours, theirs = network(), network()
    server_state, centroids = method.init(ours), torch.zeros(CLASSES, ours.feature_size)
    for index in (1, 2, 3):
        with seeded(index):
            centroids, _ = federated_round(theirs, centroids, clients(crop=0), method, index)
        total = method.zero_update(server_state)
        for number, data in enumerate(clients(crop=0)):
            load_weights(ours, server_state.model)
            labels = torch.tensor(data.labels)
            client_data = ClientDataset(
                data.pixels, torch.arange(len(data)), labels, CLASSES, Transform((MEAN,), (STD,))
            )
            total = total + method.client_update(ours, server_state, {}, client_data, RoundContext(index, 0, number))[0]
        server_state = method.server_update(server_state, total, RoundContext(index, 0))
        torch.testing.assert_close(centroids, server_state.aux["centroids"], rtol=0, atol=1e-5)
        for name, value in server_state.model.items():
            torch.testing.assert_close(theirs.state_dict()[name], value, rtol=0, atol=1e-5)
