import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from rofl.report.gallery import data_uri


def opened(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 20)])
def test_a_small_image_keeps_every_pixel(shape):
    pixels = torch.arange(torch.Size(shape).numel()).remainder(256).to(torch.uint8).reshape(shape)
    array = np.asarray(opened(data_uri(pixels)))
    assert np.array_equal(array.reshape(*shape[1:], shape[0]), pixels.permute(1, 2, 0).numpy())


def test_a_large_image_is_scaled_down():
    assert opened(data_uri(torch.zeros(3, 500, 250, dtype=torch.uint8))).size == (48, 96)
