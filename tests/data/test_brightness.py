"""Brightness is PIL's, byte by byte."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from rofl.core.rng import generator
from rofl.data import Dataset, Transform
from rofl.data.brightness import adjust_brightness, adjust_clients, sample_brightness
from rofl.data.image_store import ImageFiles
from rofl.errors import UserError

ALL_VALUES = np.arange(256, dtype=np.uint8).reshape(16, 16)


def pil(pixels: torch.Tensor, factor: float) -> torch.Tensor:
    """(C, H, W) through the module that the paper names."""
    array = pixels.permute(1, 2, 0).squeeze(2).numpy()
    bright = np.asarray(ImageEnhance.Brightness(Image.fromarray(array)).enhance(factor))
    return torch.from_numpy(bright.copy()).reshape(*pixels.shape[1:], -1).permute(2, 0, 1)


@given(factor=st.floats(0.5, 1.5) | st.floats(0, 2) | st.floats(-10, 300))
@example(factor=0.0)
@example(factor=1.0)
@example(factor=0.1)
@example(factor=0.7)  # 0.7 * 10 is 7 in float32, and less in float64
@example(factor=1 / 3)
@example(factor=1.4)
@example(factor=2.0)
def test_every_value_is_pils(factor: float) -> None:
    pixels = torch.from_numpy(ALL_VALUES).unsqueeze(0)
    assert torch.equal(adjust_brightness(pixels, factor), pil(pixels, factor))


@given(
    factor=st.floats(0, 2),
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    seed=st.integers(0, 2**32),
)
def test_random_images_are_pils(factor: float, channels: int, height: int, width: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (3, channels, height, width), generator=draw, dtype=torch.uint8)
    before = images.clone()
    assert torch.equal(adjust_brightness(images, factor), torch.stack([pil(image, factor) for image in images]))
    assert torch.equal(images, before)


def test_factors_fill_their_range_evenly() -> None:
    drawn = torch.tensor([sample_brightness(0.5, generator(0, "light", client)) for client in range(2000)])
    assert 0.5 <= drawn.min() < 0.51
    assert 1.49 < drawn.max() <= 1.5
    assert torch.histc(drawn, 5, 0.5, 1.5).tolist() == pytest.approx([400] * 5, abs=100)


def some_images(train: torch.Tensor | ImageFiles) -> Dataset:
    test = torch.full((2, 1, 2, 2), 100, dtype=torch.uint8)
    labels = torch.zeros(len(train), dtype=torch.long)
    return Dataset("toy", ("a", "b"), train, labels, test, torch.zeros(2, dtype=torch.long), Transform((0.5,), (0.5,)))


def test_each_client_has_its_own_light_and_others_and_the_test_images_stay() -> None:
    images = some_images(torch.full((6, 1, 2, 2), 100, dtype=torch.uint8))
    lit = adjust_clients(images, [torch.tensor([0, 3]), torch.tensor([5])], [0.5, 1.25])
    assert isinstance(lit.train, torch.Tensor)
    assert lit.train[:, 0, 0, 0].tolist() == [50, 100, 100, 50, 100, 125]
    assert torch.equal(lit.test, images.test)
    assert torch.equal(images.train, torch.full((6, 1, 2, 2), 100, dtype=torch.uint8))


def test_streamed_images_cannot_be_lit() -> None:
    with pytest.raises(UserError, match=r"data\.brightness needs images in memory, and those of toy are streamed"):
        adjust_clients(some_images(ImageFiles.of("/nowhere", ["a.png"], 2, 1)), [torch.tensor([0])], [1.5])
