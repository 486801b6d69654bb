"""An executor on an accelerator: nothing is left behind on the CPU, and records come back from there.

The accelerator is `tests.elsewhere`, which computes as the CPU does; so all bits are the CPU's.
"""

from typing import Any

import pytest
import torch

from rofl.core.dp import standard_normal
from rofl.core.serialization import deserialize
from rofl.core.tensors import CPU
from rofl.data import Transform
from rofl.data.image_store import ImageFiles, ImageStore
from rofl.methods import METHODS, Method, RoundContext, ServerState, Update
from rofl.methods.postprocessors import Bfloat16, GaussianDP
from rofl.methods.processed import ProcessedMethod
from rofl.simulation.client import ClientConfig
from rofl.simulation.executor import ClientExecutor, flatten_state, predict_job, shared_inputs, train_job
from rofl.simulation.network_spec import NetworkSpec
from tests.data import pictures
from tests.elsewhere import DEVICE, Elsewhere, accelerator
from tests.methods import toy

TRANSFORM = Transform(mean=(0.5,) * 3, std=(0.3,) * 3, crop=1, flip=True, window=6)
CASES: dict[str, Method] = {
    # our own methods alone tell one epoch from another
    **{name: toy.build(name, start=2, epochs=2 if name.startswith("rofl") else 1) for name in METHODS},
    "rofl, tau estimated": toy.build("rofl", tau="auto", soft=False, pseudo="naive"),
    "rofl, ablated": toy.build("rofl", mask=False, global_centroids=False, pseudo="none"),
    "rofl, private": ProcessedMethod(toy.build("rofl"), (GaussianDP(clip=1.0, noise=0.5, cohort=2),)),
    "rofl, rounded": ProcessedMethod(toy.build("rofl"), (Bfloat16(),)),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ImageFiles:
    folder = tmp_path_factory.mktemp("pictures")
    names = [f"{number}.png" for number in range(24)]
    for number, name in enumerate(names):
        pictures.write(folder / name, seed=number % 6)
    return ImageFiles.of(folder, names, side=8, channels=3)


def answers(method: Method, network: str, images: ImageStore, device: torch.device) -> list[Any]:
    """Three rounds of one client with its state, and predictions."""
    spec = NetworkSpec(network, (3, 6, 6), toy.CLASSES, 0.06, toy.SEED)
    server_state, state, found = method.init(spec.build()), {}, list[Any]()
    data = shared_inputs(images, images, torch.arange(len(images)) % toy.CLASSES, [torch.arange(0, 24, 2)])
    broadcast = flatten_state(server_state)
    executor = ClientExecutor(ClientConfig(method, spec, TRANSFORM, toy.SEED), data, broadcast, device)
    for index in (1, 2, 3):
        groups, facts = deserialize(executor.execute(train_job(index, 0, state)))
        assert "error" not in facts, facts
        state = groups["state"]
        found += [groups, facts]
        server_state = _served(method, server_state, groups, facts, index)
        for name, value in flatten_state(server_state).items():
            broadcast[name].copy_(value)
    groups, facts = deserialize(executor.execute(predict_job("test", 0, len(images))))
    assert "error" not in facts, facts
    assert all(isinstance(value, Elsewhere) == (device != CPU) for value in executor.net.state_dict().values())
    return [*found, groups]


def _served(
    method: Method, server_state: ServerState, groups: dict[str, Any], facts: dict[str, Any], index: int
) -> ServerState:
    update = Update(groups["model"], facts["weight"], groups["aux"], facts["metrics"])
    return method.server_update(server_state, method.zero_update(server_state) + update, RoundContext(index, toy.SEED))


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else bool(left == right)


@pytest.mark.parametrize("method", CASES.values(), ids=CASES.keys())
def test_clients_run_there_as_here(method: Method, files: ImageFiles) -> None:
    images = files[:]
    here = answers(method, "small", images, CPU)
    with accelerator(), torch.random.fork_rng(devices=[]):
        there = answers(method, "small", images, DEVICE)
    assert all(map(equal, here, there))


@pytest.mark.parametrize("network", ["cnn9", "mlp", pytest.param("resnet50", marks=pytest.mark.slow)])
def test_every_network_goes_there(network: str, files: ImageFiles) -> None:
    here = answers(CASES["rofl"], network, files[:], CPU)
    with accelerator(), torch.random.fork_rng(devices=[]):
        there = answers(CASES["rofl"], network, files[:], DEVICE)
    assert all(map(equal, here, there))


def test_images_in_files_follow_batch_by_batch(files: ImageFiles) -> None:
    here = answers(CASES["rofl"], "small", files[:], CPU)
    with accelerator(), torch.random.fork_rng(devices=[]):
        there = answers(CASES["rofl"], "small", files, DEVICE)
    assert all(map(equal, here, there))


def test_noise_from_the_systems_entropy_goes_there() -> None:
    with accelerator():
        like = torch.zeros(3, 2).to(DEVICE)
        drawn = standard_normal(like)
    assert (drawn.device, drawn.dtype, drawn.shape) == (DEVICE, like.dtype, like.shape)


def test_what_stays_on_the_cpu_would_be_seen() -> None:
    """Else the tests above would say nothing."""
    with accelerator():
        there = torch.ones(3).to(DEVICE)
        for careless in (
            lambda: there + torch.ones(3),
            lambda: there[torch.tensor([0, 1])],
            lambda: torch.stack([there[0], torch.tensor(1.0)]),
            lambda: torch.rand(3, device=DEVICE, generator=torch.Generator()),
        ):
            with pytest.raises(RuntimeError, match="what is on the CPU"):
                careless()
        assert (there * 2).sum().item() == 6
        assert type(there.cpu()) is torch.Tensor
