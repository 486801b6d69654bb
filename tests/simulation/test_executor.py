"""Images in files give the bits of images in memory, with and without worker processes."""

from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch

from rofl.core.serialization import deserialize
from rofl.core.tensors import digest
from rofl.data import Transform
from rofl.data.image_store import ImageFiles, ImageStore, store_from_tensors
from rofl.data.sources import clothing1m
from rofl.errors import UserError
from rofl.simulation.client import ClientConfig
from rofl.simulation.engine import Simulation
from rofl.simulation.executor import ClientExecutor, flatten_state, predict_job, shared_inputs, train_job
from rofl.simulation.network_spec import NetworkSpec
from rofl.simulation.worker_pool import WorkerPool
from tests.data import pictures
from tests.methods import toy

SIDE, CLASSES = 8, 14
TRANSFORM = Transform((0.5,) * 3, (0.3,) * 3, flip=True, window=6)
NETWORK = NetworkSpec("small", (3, 6, 6), CLASSES, 0.25, toy.SEED)
PARTS = [torch.arange(0, 9), torch.arange(9, 16), torch.arange(16, 24)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[ImageFiles, ImageFiles, torch.Tensor]:
    """Train and test part of a small Clothing1M, decoded to few pixels, and the given labels."""
    root = tmp_path_factory.mktemp("clothing1m")
    pictures.write_clothing1m(root, train=24, test=6)
    images = clothing1m.load_clothing1m(root)
    assert isinstance(images.train, ImageFiles)
    assert isinstance(images.test, ImageFiles)
    return replace(images.train, side=SIDE), replace(images.test, side=SIDE), images.train_labels


def outcome(train: ImageStore, test: ImageStore, labels: torch.Tensor, workers: int) -> tuple[str, ...]:
    """Digests after two rounds of rofl: of the global state, and of its predictions on both parts."""
    method = toy.build("rofl")
    begun = method.init(NETWORK.build())
    data = shared_inputs(train, test, labels, PARTS)
    pool = WorkerPool(workers, ClientConfig(method, NETWORK, TRANSFORM, toy.SEED), data, flatten_state(begun))
    try:
        simulation = Simulation(pool, method, [len(part) for part in PARTS], len(PARTS), toy.SEED)
        reports = list(simulation.rounds(begun, 1, 2))
        assert all(report.dropped == {} for report in reports)
        last = reports[-1].server_state
        predictions = (simulation.predict(last, "train", len(train)), simulation.predict(last, "test", len(test)))
    finally:
        pool.close()
    return digest(last.model, last.aux), *(digest({"l": pair[0], "f": pair[1]}) for pair in predictions)


@pytest.fixture(scope="module")
def in_memory(files: tuple[ImageFiles, ImageFiles, torch.Tensor]) -> tuple[str, ...]:
    train, test, labels = files
    return outcome(train[:], test[:], labels, workers=0)


@pytest.mark.parametrize("workers", [0, 1])
def test_streaming_gives_the_bits_of_images_in_memory(
    files: tuple[ImageFiles, ImageFiles, torch.Tensor], in_memory: tuple[str, ...], workers: int
) -> None:
    assert outcome(*files, workers=workers) == in_memory


def test_a_part_in_memory_and_one_in_files_go_together(
    files: tuple[ImageFiles, ImageFiles, torch.Tensor], in_memory: tuple[str, ...]
) -> None:
    train, test, labels = files
    assert outcome(train, test[:], labels, workers=0) == in_memory


def test_only_names_cross_to_the_workers_and_lead_to_the_same_images(
    files: tuple[ImageFiles, ImageFiles, torch.Tensor],
) -> None:
    train, test, labels = files
    data = shared_inputs(train, test, labels, PARTS)
    assert sum(value.numel() * value.element_size() for value in data.values()) < 5000  # 30 images have 5760 pixels
    assert torch.equal(store_from_tensors("train", data)[:], train[:])
    assert torch.equal(store_from_tensors("test", data)[:], test[:])


def test_an_image_that_cannot_be_read_is_named_in_the_answer(tmp_path: Path) -> None:
    pictures.write(tmp_path / "a.png")
    (tmp_path / "b,1.png").write_bytes(b"no image")
    pixels = ImageFiles.of(tmp_path, ["a.png", "b,1.png"] * 12, SIDE, 3)
    method = toy.build("plain")
    data = shared_inputs(pixels, pixels, torch.zeros(24, dtype=torch.long), PARTS)
    executor = ClientExecutor(
        ClientConfig(method, NETWORK, TRANSFORM, toy.SEED), data, flatten_state(method.init(NETWORK.build()))
    )
    for job in (train_job(1, 0, {}), predict_job("test", 0, 24)):
        assert f"The image {tmp_path / 'b,1.png'} cannot be read" in deserialize(executor.execute(job))[1]["error"]


def test_a_network_starts_from_published_weights_and_a_seat_does_without_them(tmp_path: Path) -> None:
    spec = NetworkSpec("resnet50", (3, 6, 6), CLASSES, 1 / 64, seed=0)
    other = replace(spec, seed=1).build().extractor.state_dict()
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file({name: value.contiguous() for name, value in other.items()}, path)
    started = replace(spec, weights=str(path))
    net = started.build()
    assert digest(net.extractor.state_dict()) == digest(other)
    assert digest(net.classifier.state_dict()) == digest(spec.build().classifier.state_dict())
    path.unlink()
    with pytest.raises(UserError, match="There is no weight file"):
        started.build()
    method = toy.build("plain")
    pixels, labels = torch.zeros(24, 3, SIDE, SIDE, dtype=torch.uint8), torch.zeros(24, dtype=torch.long)
    begun = flatten_state(method.init(net))
    executor = ClientExecutor(
        ClientConfig(method, started, TRANSFORM, toy.SEED), shared_inputs(pixels, pixels, labels, PARTS), begun
    )
    answer, _ = deserialize(executor.execute(predict_job("test", 0, 24)))
    torch.testing.assert_close(
        answer["prediction"]["features"], net.predictor()(TRANSFORM(pixels))[1].detach(), rtol=1e-4, atol=1e-5
    )
