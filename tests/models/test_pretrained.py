import os
import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch

from rofl.core.tensors import Tensors, float_entries
from rofl.errors import UserError
from rofl.models import Network, build
from rofl.models.pretrained import load_pretrained


def fresh(seed: int = 0, name: str = "resnet50", channels: int = 3, width: float = 1 / 16) -> Network:
    return build(name, (channels, 32, 32), 5, width, seed)


@pytest.fixture(scope="module")
def published() -> Tensors:
    """A narrow network's tensors as torchvision would name them, with statistics that say something."""
    rng = torch.Generator().manual_seed(2)
    tensors = {
        name.removeprefix("extractor."): torch.rand(value.shape, generator=rng) if value.dim() else value
        for name, value in fresh(1).state_dict().items()
        if not name.startswith("classifier.")
    }
    return {**tensors, "fc.weight": torch.ones(1000, 64), "fc.bias": torch.ones(1000)}


def save(path: Path, tensors: Tensors) -> Path:
    safetensors.torch.save_file(tensors, path) if path.suffix == ".safetensors" else torch.save(tensors, path)
    return path


def refused(path: Path, net: Network | None = None) -> UserError:
    net = net or fresh()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(UserError) as caught:
        load_pretrained(net, path)
    assert str(path) in caught.value.sentence
    assert "\n" not in caught.value.sentence
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    return caught.value


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("counted", [True, False])  # older files lack batch norm's counters
def test_all_but_the_classifier_is_loaded(tmp_path, published, suffix, counted):
    tensors = published if counted else float_entries(published)
    net, untouched = fresh(), fresh()
    load_pretrained(net, save(tmp_path / f"w{suffix}", tensors))
    own = float_entries(net.extractor.state_dict())
    assert len(own) == 267 - 2  # all of torchvision's but fc
    assert all(torch.equal(value, published[name]) for name, value in own.items())
    assert torch.equal(net.classifier.weight, untouched.classifier.weight)
    assert net.extractor.get_submodule("layer1.0.conv2").weight.is_contiguous(memory_format=torch.channels_last)
    assert all(weight.requires_grad for weight in net.parameters())


def test_half_precision_is_widened(tmp_path, published):
    net = fresh()
    load_pretrained(
        net, save(tmp_path / "w.safetensors", {name: v.half() for name, v in float_entries(published).items()})
    )
    assert net.extractor.get_submodule("conv1").weight.dtype == torch.float32


def test_grey_images_are_seen_as_three_equal_colours(tmp_path, published):
    path = save(tmp_path / "w.pth", published)
    colours, grey = fresh(), fresh(channels=1)
    x = torch.randn(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    seen = []
    for net, image in ((colours, x.expand(2, 3, 32, 32)), (grey, x)):
        load_pretrained(net, path)
        seen.append(net.extractor.get_submodule("conv1")(image))
    torch.testing.assert_close(*seen, rtol=1e-4, atol=1e-4)


def test_weights_of_another_width_or_network_are_refused(tmp_path, published):
    path = save(tmp_path / "w.pth", published)
    error = refused(path, fresh(width=1 / 8))
    assert "do not fit this network: 'bn1.bias' has shape (4,), not (8,)" in error.sentence
    assert "torchvision" in error.hint
    assert "do not fit this network" in refused(path, fresh(name="cnn9")).sentence


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("layer2.0.downsample.0.weight"), "'layer2.0.downsample.0.weight' is missing"),
        (lambda t: t.update({"layer9.weight": torch.ones(2)}), "'layer9.weight' was not asked for"),
        (lambda t: t.update({"bn1.bias": torch.tensor([1.0, 0.0, 2.0, float("nan")])}), "'bn1.bias' is not finite"),
        (lambda t: t.update({"conv1.weight": torch.ones(4, 3, 7, 5)}), "'conv1.weight' has shape (4, 3, 7, 5)"),
        (lambda t: t.update({"conv1.weight": torch.ones(4, 1, 7, 7)}), "'conv1.weight' has shape (4, 1, 7, 7)"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, published, change, words):
    tensors = dict(published)
    change(tensors)
    assert words in refused(save(tmp_path / "w.pth", tensors)).sentence


class Code:
    """A pickle of it runs a command when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("write", [torch.save, lambda thing, path: path.write_bytes(pickle.dumps(thing))])
def test_code_in_a_file_is_not_run(tmp_path, published, write):
    marker = tmp_path / "ran"
    write({**published, "conv1.weight": Code(marker)}, tmp_path / "w.pth")
    assert "is not a file of weights that can be read safely" in refused(tmp_path / "w.pth").sentence
    assert not marker.exists()


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"no weights", b"PK\x03\x04"])
def test_another_kind_of_file_is_refused(tmp_path, suffix, content):
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    assert "is not a file of weights" in refused(path).sentence


@pytest.mark.parametrize("thing", [[torch.ones(2)], {"state_dict": {"conv1.weight": torch.ones(2)}}, torch.ones(2)])
def test_tensors_without_names_are_refused(tmp_path, thing):
    torch.save(thing, tmp_path / "w.pth")
    assert "does not contain named weights" in refused(tmp_path / "w.pth").sentence
