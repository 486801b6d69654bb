import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from rofl.report import thumbnails as room
from rofl.report.thumbnails import thumbnails


def opened(picture):
    return Image.open(io.BytesIO(base64.b64decode(picture)))


def noise(*shape):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 20)])
def test_a_small_image_keeps_every_pixel(shape):
    images = noise(3, *shape)
    made = thumbnails(images, [2, 0])
    assert (made.media_type, made.edge, len(made.pictures)) == ("image/png", max(shape), 2)
    for picture, row in zip(made.pictures, (2, 0), strict=True):
        array = np.asarray(opened(picture)).reshape(*shape[1:], shape[0])
        assert np.array_equal(array, images[row].permute(1, 2, 0).numpy())


def test_a_large_image_is_scaled_down_and_keeps_its_shape():
    made = thumbnails(torch.zeros(1, 3, 500, 250, dtype=torch.uint8), [0])
    assert (made.media_type, made.edge) == ("image/webp", 96)
    assert opened(made.pictures[0]).size == (48, 96)


def test_a_picture_is_never_blown_up():
    assert opened(thumbnails(noise(1, 1, 40, 40), [0]).pictures[0]).size == (40, 40)


def test_without_webp_there_is_jpeg(monkeypatch):
    monkeypatch.setattr("PIL.features.check", lambda _: False)
    made = thumbnails(noise(1, 3, 64, 64), [0])
    assert made.media_type == "image/jpeg"
    assert opened(made.pictures[0]).format == "JPEG"


@pytest.mark.parametrize(("budget", "kind", "edge"), [(10**6, "png", 32), (150_000, "webp", 32)])
def test_many_pictures_are_made_smaller(monkeypatch, budget, kind, edge):
    monkeypatch.setattr(room, "_BUDGET", budget)
    made = thumbnails(noise(1, 3, 32, 32), [0] * 60)
    assert (made.media_type, made.edge) == (f"image/{kind}", edge)
    assert sum(map(len, made.pictures)) <= budget


def test_the_smallest_form_is_taken_where_none_fits(monkeypatch):
    monkeypatch.setattr(room, "_BUDGET", 1)
    assert thumbnails(noise(2, 3, 128, 128), [0, 1]).edge == 32


def test_more_than_fit_in_memory_at_once_keep_their_order(monkeypatch):
    monkeypatch.setattr(room, "_CHUNK", 3)
    images = noise(8, 1, 4, 4)
    assert thumbnails(images, list(range(8))).pictures == [thumbnails(images, [row]).pictures[0] for row in range(8)]
