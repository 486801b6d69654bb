import numpy as np
import pytest
import torch
from PIL import Image

from rofl.data import image_io
from rofl.data.image_store import ImageFiles
from rofl.data.user import UserSource, load_user_data
from tests.data import pictures

SMOOTH = np.asarray(Image.fromarray(pictures.pattern(16, 16, 1)).convert("L")).astype(int)


def seen(path, side=16, channels=1):
    return image_io.decode_image(path, side, channels).astype(int)


@pytest.mark.parametrize(
    ("mode", "suffix", "apart"),
    [
        *(
            ("L", "png", 1),
            ("RGB", "png", 1),
            ("RGB", "bmp", 1),
            ("RGB", "webp", 8),
            ("P", "gif", 16),
            ("P", "png", 16),
        ),
        *(("CMYK", "jpg", 16), ("CMYK", "tif", 16), ("LA", "png", 1), ("RGBA", "png", 1), ("I;16", "png", 1)),
        *(("I;16", "tiff", 1), ("1", "png", 128), ("YCbCr", "jpg", 8)),
    ],
)
def test_every_mode_becomes_grey_and_colours(tmp_path, mode, suffix, apart):
    path = pictures.write(tmp_path / f"x.{suffix}", 16, 16, mode, seed=1)
    grey, colours = seen(path), seen(path, channels=3)
    assert abs(grey[:, :, 0] - SMOOTH).mean() <= apart
    assert abs(colours @ [0.299, 0.587, 0.114] - SMOOTH).mean() <= apart
    info = image_io.inspect_image(path)
    assert (info.error, info.size) == ("", (16, 16))
    assert info.grey == (mode in ("L", "LA", "I;16", "1"))


@pytest.mark.parametrize("kind", ["RGBA", "LA", "palette"])
def test_what_is_transparent_is_white(tmp_path, kind):
    if kind == "palette":
        image = Image.new("P", (8, 8), 1)
        image.putpalette([0, 0, 0, 10, 10, 10])
        image.save(tmp_path / "x.png", transparency=1)
    else:
        Image.new(kind, (8, 8), (10, 10, 10, 0) if kind == "RGBA" else (10, 0)).save(tmp_path / "x.png")
    assert (seen(tmp_path / "x.png", 8, 3) == 255).all()


@pytest.mark.parametrize(("largest", "byte"), [(255, 255), (4095, 255), (65535, 255), (1000, 62), (30000, 117)])
def test_the_bits_that_are_used_count(tmp_path, largest, byte):
    """Scanners write 12 bits into 16."""
    values = np.zeros((8, 8), np.uint16)
    values[:] = largest
    Image.fromarray(values).save(tmp_path / "x.png")
    assert (seen(tmp_path / "x.png", 8) == byte).all()


@pytest.mark.parametrize(("value", "byte"), [(0.5, 127), (1.0, 255), (200.0, 200), (1e9, 255), (float("nan"), 0)])
def test_grey_as_fractions(tmp_path, value, byte):
    Image.fromarray(np.full((8, 8), value, np.float32)).save(tmp_path / "x.tif")
    assert (seen(tmp_path / "x.tif", 8) == byte).all()


def test_exif_says_which_side_is_up(tmp_path):
    pixels = np.zeros((8, 8), np.uint8)
    pixels[:2] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: the top comes to the right
    Image.fromarray(pixels).save(tmp_path / "x.jpg", exif=exif, quality=100)
    found = seen(tmp_path / "x.jpg", 8)[:, :, 0]
    assert found[:, -2:].min() > 200
    assert found[:, :5].max() < 60


def test_other_sizes_are_squeezed_to_the_square(tmp_path):
    path = pictures.write(tmp_path / "x.png", 40, 20, seed=3)
    expected = Image.open(path).resize((12, 12), Image.Resampling.BILINEAR)
    assert (seen(path, 12, 3) == np.asarray(expected)).all()


def test_an_array_is_taken_as_a_file_of_it_would_be(tmp_path):
    array = pictures.pattern(20, 10, seed=4)
    Image.fromarray(array).save(tmp_path / "x.png")
    assert (image_io.decode_image(array, 8, 3) == image_io.decode_image(tmp_path / "x.png", 8, 3)).all()
    grey = array[:, :, 0]
    assert (image_io.decode_image(grey, 8, 1) == image_io.decode_image(grey[:, :, None], 8, 1)).all()


# --- one decoder for streamed sets and for user data ---


def write_odd(path, kind, seed):
    """A file that a careless decoder gets wrong."""
    pixels = pictures.pattern(16, 16, seed)
    if kind == "exif":
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.fromarray(pixels).save(path.with_suffix(".jpg"), exif=exif, quality=95)
        return path.with_suffix(".jpg")
    if kind == "alpha":
        Image.fromarray(np.dstack([pixels, pixels[:, :, 0]])).save(path)
    elif kind == "palette":
        Image.fromarray(pixels).convert("P").save(path, transparency=bytes(range(256)))
    else:
        bits = {"12 bits": 12, "16 bits": 16}[kind]
        Image.fromarray(pixels[:, :, 0].astype(np.uint16) << (bits - 8)).save(path)
    return path


@pytest.mark.parametrize("kind", ["exif", "alpha", "palette", "12 bits", "16 bits"])
@pytest.mark.parametrize("channels", [1, 3])
def test_an_odd_file_gives_the_same_pixels_streamed_and_as_user_data(tmp_path, kind, channels):
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        for number in range(3):
            write_odd(tmp_path / label / f"{number}.png", kind, seed=number + 10 * (label == "b"))
    data = load_user_data(UserSource(str(tmp_path), side=16, channels=channels))
    assert len(data.ids) >= 4
    streamed = ImageFiles.of(tmp_path, data.ids, 16, channels)[:]
    assert torch.equal(streamed, data.train)
    assert len(streamed.unique()) > 10


def test_a_streamed_image_is_turned_as_exif_says(tmp_path):
    upright = Image.fromarray(pictures.pattern(16, 16, 3))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "x.png", exif=exif)
    assert (ImageFiles.of(tmp_path, ["x.png"], 16, 3)[0].permute(1, 2, 0).numpy() == np.asarray(upright)).all()
