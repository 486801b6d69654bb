import gzip
import io
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from PIL import Image

from rofl.data.sources import cifar10
from rofl.errors import UserError

TRAIN = [f"data_batch_{number}.bin" for number in range(1, 6)]


def pixels(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def planes(images: np.ndarray) -> torch.Tensor:
    return torch.tensor(images.transpose(0, 3, 1, 2).copy())


def record(image: np.ndarray, label: int) -> bytes:
    """A label byte, then all of red, all of green, all of blue, row by row."""
    values = [label]
    for channel in range(3):
        for row in range(32):
            values += [int(image[row, column, channel]) for column in range(32)]
    return bytes(values)


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, raw in members.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    return path


def members() -> dict[str, bytes]:
    """Two images in each training batch, three in the test batch; the labels count up."""
    images = pixels(13)
    raw = [record(image, label % 10) for label, image in enumerate(images)]
    parts = {name: b"".join(raw[2 * place : 2 * place + 2]) for place, name in enumerate(TRAIN)}
    shuffled = {name: parts[name] for name in reversed(TRAIN)}  # the order inside the archive must not matter
    return {"batches.meta.txt": b"airplane\n", "test_batch.bin": b"".join(raw[10:]), **shuffled}


def png(image: np.ndarray) -> bytes:
    packed = io.BytesIO()
    Image.fromarray(image).save(packed, "PNG")
    return packed.getvalue()


def table(path: Path, cells: list[bytes], labels: list[int], image_name: str = "img", bare: bool = False) -> Path:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    column = pa.array(cells, pa.binary()) if bare else pa.array([{"bytes": cell, "path": None} for cell in cells], kind)
    parquet.write_table(pa.table({image_name: column, "label": pa.array(labels, pa.int64())}), path)
    return path


def assert_one_sentence(caught, path: Path) -> None:
    sentence = caught.value.sentence
    assert str(path) in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_the_archive_is_read_back_pixel_by_pixel(tmp_path):
    (train, train_labels), (test, test_labels) = cifar10.read_archive(archive(tmp_path / "c.tar.gz", members()))
    assert torch.equal(train, planes(pixels(13)[:10]))
    assert torch.equal(test, planes(pixels(13)[10:]))
    assert (train_labels.tolist(), test_labels.tolist()) == ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 1, 2])
    assert train.dtype == torch.uint8
    assert train_labels.dtype == torch.int64


@pytest.mark.parametrize("missing", [TRAIN[2], "test_batch.bin"])
def test_a_missing_member_is_the_users_to_mend(tmp_path, missing):
    rest = {name: raw for name, raw in members().items() if name != missing}
    path = archive(tmp_path / "c.tar.gz", rest)
    with pytest.raises(UserError, match=f"lacks {missing}") as caught:
        cifar10.read_archive(path)
    assert_one_sentence(caught, path)


@pytest.mark.parametrize("name", [TRAIN[4], "test_batch.bin"])
def test_an_incomplete_record_is_the_users_to_mend(tmp_path, name):
    path = archive(tmp_path / "c.tar.gz", members() | {name: members()[name][:-1]})
    with pytest.raises(UserError, match="incomplete record") as caught:
        cifar10.read_archive(path)
    assert_one_sentence(caught, path)


def with_a_bad_block(raw: bytes) -> bytes:
    """The same tar, packed anew: sound up to the middle, then a block of a type that gzip does not have."""
    tar = gzip.decompress(raw)
    packer = zlib.compressobj(wbits=31)
    return packer.compress(tar[: len(tar) // 2]) + packer.flush(zlib.Z_SYNC_FLUSH) + b"\x07" + bytes(100)


SPOILT = {
    "cut off": lambda raw: raw[: len(raw) // 2],
    "bad block": with_a_bad_block,
    "empty": lambda raw: b"",
    "another thing": lambda raw: b"<html>404</html>",
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_broken_archive_is_the_users_to_mend(tmp_path, spoil):
    path = archive(tmp_path / "c.tar.gz", members())
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(UserError, match="cannot be read") as caught:
        cifar10.read_archive(path)
    assert_one_sentence(caught, path)


@pytest.mark.parametrize("bare", [False, True], ids=["struct", "bytes alone"])
def test_parquet_is_read_back_pixel_by_pixel(tmp_path, bare):
    images = pixels(4)
    path = table(tmp_path / "t.parquet", [png(image) for image in images], [3, 0, 9, 3], bare=bare)
    found, labels = cifar10.read_parquet(path)
    assert torch.equal(found, planes(images))
    assert found.is_contiguous()
    assert found.dtype == torch.uint8
    assert labels.tolist() == [3, 0, 9, 3]
    assert labels.dtype == torch.int64


def test_a_grey_image_becomes_three_equal_channels(tmp_path):
    grey = pixels(1)[0, :, :, 0]
    found, _ = cifar10.read_parquet(table(tmp_path / "t.parquet", [png(grey)], [1]))
    assert torch.equal(found[0], torch.tensor(grey).expand(3, 32, 32))


WHOLE = png(pixels(1)[0])
BROKEN = {
    "no image": b"hello",
    "empty": b"",
    "cut off": WHOLE[:-200],
    "flipped": WHOLE[:100] + bytes([WHOLE[100] ^ 0xFF]) + WHOLE[101:],
    "too small": png(pixels(1)[0, :28, :28]),
    "too large": png(np.zeros((33, 32, 3), dtype=np.uint8)),
    "a single pixel": png(pixels(1)[0, :1, :1]),
    "null": None,
}


@pytest.mark.parametrize("cell", BROKEN.values(), ids=BROKEN)
def test_a_broken_image_is_the_users_to_mend(tmp_path, cell):
    path = table(tmp_path / "t.parquet", [WHOLE, cell], [0, 1])
    with pytest.raises(UserError, match="image 1 of ") as caught:
        cifar10.read_parquet(path)
    assert_one_sentence(caught, path)


def test_a_file_that_is_no_parquet_is_the_users_to_mend(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"hello, world")
    with pytest.raises(UserError, match="is not a parquet file with the columns img and label"):
        cifar10.read_parquet(path)


def test_a_missing_column_is_the_users_to_mend(tmp_path):
    path = table(tmp_path / "t.parquet", [WHOLE], [0], image_name="picture")
    with pytest.raises(UserError, match="is not a parquet file with the columns img and label") as caught:
        cifar10.read_parquet(path)
    assert_one_sentence(caught, path)


def test_load_takes_parquet_where_both_files_are_there(tmp_path):
    images = pixels(3)
    table(tmp_path / "train.parquet", [png(image) for image in images[:2]], [8, 1])
    table(tmp_path / "test.parquet", [png(images[2])], [5])
    archive(tmp_path / "cifar-10-binary.tar.gz", members())
    loaded = cifar10.load_cifar10(tmp_path)
    assert torch.equal(loaded.train, planes(images[:2]))
    assert torch.equal(loaded.test, planes(images[2:]))
    assert (loaded.train_labels.tolist(), loaded.test_labels.tolist()) == ([8, 1], [5])
    assert loaded.shape == (3, 32, 32)
    assert len(loaded.classes) == 10


def test_load_takes_the_archive_otherwise(tmp_path):
    table(tmp_path / "train.parquet", [WHOLE], [8])  # alone it is not enough
    archive(tmp_path / "cifar-10-binary.tar.gz", members())
    loaded = cifar10.load_cifar10(tmp_path)
    assert len(loaded.train) == 10
    assert len(loaded.test) == 3
