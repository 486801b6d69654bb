import gzip
from pathlib import Path

import pytest
import torch

from rofl.data.sources import mnist
from rofl.errors import UserError


def idx(values: torch.Tensor) -> bytes:
    """The file format, byte by byte."""
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.dim()]) + sizes + bytes(values.flatten().tolist())


def pixels(count: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 28, 28), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


PARTS = {
    "train-images-idx3-ubyte": pixels(5, seed=1),
    "train-labels-idx1-ubyte": torch.tensor([3, 9, 0, 1, 3], dtype=torch.uint8),
    "t10k-images-idx3-ubyte": pixels(2, seed=2),
    "t10k-labels-idx1-ubyte": torch.tensor([7, 7], dtype=torch.uint8),
}


def write(folder: Path, packed: bool) -> None:
    for name, values in PARTS.items():
        raw = idx(values)
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(raw) if packed else raw)


@pytest.mark.parametrize("packed", [True, False], ids=["gz", "plain"])
def test_the_four_files_are_read_back(tmp_path, packed):
    write(tmp_path, packed)
    loaded = mnist.load_mnist(tmp_path)
    assert torch.equal(loaded.train, PARTS["train-images-idx3-ubyte"].unsqueeze(1))
    assert torch.equal(loaded.test, PARTS["t10k-images-idx3-ubyte"].unsqueeze(1))
    assert (loaded.train_labels.tolist(), loaded.test_labels.tolist()) == ([3, 9, 0, 1, 3], [7, 7])
    assert loaded.train.dtype == torch.uint8
    assert loaded.train_labels.dtype == loaded.test_labels.dtype == torch.int64
    assert loaded.shape == (1, 28, 28)
    assert loaded.classes == tuple("0123456789")


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4), (0, 5)])
def test_any_number_of_dimensions_is_read(tmp_path, shape):
    values = torch.arange(torch.Size(shape).numel(), dtype=torch.uint8).view(shape)
    (tmp_path / "values").write_bytes(idx(values))
    assert torch.equal(mnist.read_idx(tmp_path / "values"), values)


WHOLE = idx(pixels(3, seed=3))
BROKEN = {
    "empty": b"",
    "header cut off": WHOLE[:3],
    "sizes cut off": WHOLE[:9],
    "values cut off": WHOLE[:-1],
    "too many values": WHOLE + b"\0",
    "wrong magic": b"\x89PNG" + WHOLE[4:],
    "another value type": b"\0\0\x0d" + WHOLE[3:],
    "no dimensions": b"\0\0\x08\0",
}


def assert_one_sentence(caught, path: Path) -> None:
    sentence = caught.value.sentence
    assert str(path) in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert caught.value.hint == "delete it and fetch it again"


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("packed", [True, False], ids=["gz", "plain"])
def test_a_file_that_is_no_whole_idx_file_is_the_users_to_mend(tmp_path, raw, packed):
    path = tmp_path / ("values.gz" if packed else "values")
    path.write_bytes(gzip.compress(raw) if packed else raw)
    with pytest.raises(UserError, match="is not a complete idx file") as caught:
        mnist.read_idx(path)
    assert_one_sentence(caught, path)


def flipped(raw: bytes, place: int) -> bytes:
    return raw[:place] + bytes([raw[place] ^ 0xFF]) + raw[place + 1 :]


PACKED = gzip.compress(WHOLE, mtime=0)
BROKEN_GZIP = {
    "cut off": PACKED[:-100],
    "no gzip at all": WHOLE,
    "header flipped": flipped(PACKED, 0),
    "method flipped": flipped(PACKED, 2),
    "no such block type": PACKED[:10] + b"\x07" + PACKED[11:],
    "checksum flipped": flipped(PACKED, len(PACKED) - 8),
}


@pytest.mark.parametrize("raw", BROKEN_GZIP.values(), ids=BROKEN_GZIP)
def test_a_broken_gzip_is_the_users_to_mend(tmp_path, raw):
    path = tmp_path / "values.gz"
    path.write_bytes(raw)
    with pytest.raises(UserError, match="cannot be read") as caught:
        mnist.read_idx(path)
    assert_one_sentence(caught, path)
