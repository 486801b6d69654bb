"""Small files that would unpack to much, never end, or lead elsewhere: refused by what they declare."""

import functools
import io
import os
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from rofl.data import regular_file
from rofl.data.image_io import MAX_PIXELS, decode_image, inspect_image
from rofl.data.regular_file import read_regular
from rofl.data.user import UserSource, load_user_data, parquet_table
from rofl.data.user.columns import MAX_COLUMNS, read_columns
from rofl.data.user.npz import read_npz
from rofl.data.user.parquet_pages import page_sizes
from rofl.data.user.table_encoder import TableEncoder
from rofl.errors import UserError, one_line
from tests.data.user import places
from tests.fuzz.test_readers import memory


def refused(read: Callable[[], object], megabytes: int = 64) -> str:
    """The sentence in which a file is refused; soon, and without unpacking it."""
    Path("/proc/self/clear_refs").write_text("5")
    before, begin = memory("VmHWM"), time.process_time()
    with pytest.raises(UserError) as caught:
        read()
    assert memory("VmHWM") - before < megabytes
    assert time.process_time() - begin < 5
    assert "\n" not in str(caught.value)
    return caught.value.sentence


# --- images ---


def png(width: int, height: int) -> bytes:
    """An image of zeros, of about a thousandth of its size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)  # one bit a pixel
    row = bytes(1 + (width + 7) // 8)
    packer = zlib.compressobj()
    pixels = b"".join(packer.compress(row * 64) for _ in range(height // 64)) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def test_an_image_is_refused_by_its_declared_size(tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png(8064, 8064))
    assert MAX_PIXELS < 8064**2
    begin, before = time.process_time(), memory("VmRSS")
    assert inspect_image(path).error == "too large"
    with pytest.raises(Exception, match="8064 x 8064"):
        decode_image(path, 8, 1)
    assert time.process_time() - begin < 1
    assert memory("VmRSS") - before < 32


def test_a_side_that_a_coordinator_chooses_must_fit_into_memory(tmp_path: Path) -> None:
    places.write_folder(tmp_path / "photos", each=2)
    with small_machine(2**16):
        problem = refused(lambda: load_user_data(UserSource(str(tmp_path / "photos"), side=1024, channels=3)))
    assert "images of 1024 x 1024 pixels do not fit into half of the memory" in problem


@pytest.mark.parametrize("form", ["EPS", "PCX", "TGA", "ICO", "PDF", "SGI", "PPM", "JPEG2000"])
def test_only_common_formats_are_decoded_whatever_the_suffix(form: str, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    try:
        Image.new("RGB", (16, 16)).save(path, form)
    except (OSError, KeyError):
        pytest.skip(f"PIL cannot write {form} here")
    assert inspect_image(path).error == "not an image"


def test_pipes_devices_and_links_are_no_samples(tmp_path: Path) -> None:
    places.write_folder(tmp_path / "photos")
    os.mkfifo(tmp_path / "photos" / "site 2" / "cat" / "pipe.png")
    found = load_user_data(UserSource(str(tmp_path / "photos")))
    assert found.unreadable == ("site 2/cat/pipe.png: not a regular file",)
    (tmp_path / "photos" / "site 2" / "cat" / "link.png").symlink_to("/etc/passwd")
    problem = refused(lambda: load_user_data(UserSource(str(tmp_path / "photos"))))
    assert problem.endswith("link.png is a link, and links are not followed.")


# --- any file ---


def test_a_file_is_refused_unless_it_is_regular_and_small_enough(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    with open(tmp_path / "huge", "wb") as sparse:
        sparse.truncate(2**40)
    for name in ("pipe", "/dev/zero", "/dev/tty", "huge", "."):
        with pytest.raises(OSError, match=r"regular|more than|directory"):
            read_regular(tmp_path / name)
    assert read_regular(tmp_path / "link") == b"content"
    with pytest.raises(OSError, match="link"):
        read_regular(tmp_path / "link", follow=False)
    with pytest.raises(OSError, match="7 bytes, more than 6"):
        read_regular(tmp_path / "file", 6)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_data_that_is_no_regular_file_or_too_large(suffix: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"pipe.{suffix}")
    with open(tmp_path / f"huge.{suffix}", "wb") as sparse:
        sparse.truncate(2**40)
    (tmp_path / f"zero.{suffix}").symlink_to("/dev/zero")
    for name in ("pipe", "huge", "zero"):
        read = functools.partial(load_user_data, UserSource(str(tmp_path / f"{name}.{suffix}")))
        assert "cannot be read as" in refused(read)


def test_sentences_do_not_command_the_terminal() -> None:
    error = UserError("There is no class 'cat\x1b]0;owned\x07\u202e\n'.", "dog\r")
    assert str(error) == "There is no class 'cat\\x1b]0;owned\\x07\\u202e\\n'. Try: dog\\r"
    assert len(one_line("a" * 10**6)) < 2100


# --- arrays ---


def npy(shape: tuple[int, ...], content: bytes, dtype: str = "|u1") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": dtype})
    return file.getvalue() + content


def archive(path: Path, members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as packed:
        for name, content in members.items():
            packed.writestr(f"{name}.npy", content)
    return path


@contextmanager
def small_machine(share: int) -> Iterator[None]:
    """Reading may take one part in so many of the memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regular_file, "_SHARE_OF_MEMORY", share)
        regular_file.memory_budget.cache_clear()
        yield
    regular_file.memory_budget.cache_clear()


def test_arrays_are_refused_by_their_declared_size(tmp_path: Path) -> None:
    images, labels = npy((3, 8, 8), bytes(192)), npy((3,), b"abc", "|S1")
    liar = archive(tmp_path / "liar.npz", {"images": npy((10**9, 10**6, 10**6), b"x" * 100), "labels": labels})
    assert "images.npy declares 1000000000000000000000 bytes and holds 100" in refused(lambda: read_npz(liar))
    wide = archive(tmp_path / "wide.npz", {"images": images, "labels": npy((3,), b"abc", "<U99999999")})
    assert "labels.npy declares 1199999988 bytes and holds 3" in refused(lambda: read_npz(wide))
    zeros = archive(tmp_path / "zeros.npz", {"images": npy((100_000, 16, 16), bytes(100_000 * 256)), "labels": labels})
    assert zeros.stat().st_size < 100_000
    with small_machine(4096):
        assert "its arrays have 25600" in refused(lambda: read_npz(zeros))


def test_members_that_nobody_needs_are_not_unpacked_and_unusual_ones_refused(tmp_path: Path) -> None:
    few = {"images": npy((3, 8, 8), bytes(192)), "labels": npy((3,), b"abc", "|S1")}
    with_bomb = archive(tmp_path / "a.npz", {**few, "other": bytes(64 * 2**20)})
    before = memory("VmRSS")
    assert len(read_npz(with_bomb).samples) == 3
    assert memory("VmRSS") - before < 16
    packed = archive(tmp_path / "b.npz", few, zipfile.ZIP_LZMA)
    assert "compressed in a way that numpy does not use" in refused(lambda: read_npz(packed))


# --- parquet ---


def parquet(path: Path, columns: dict[str, object], **options: object) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path, **options)
    return path


def test_page_sizes_are_those_that_the_writer_made(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"x": list(range(1000)), "y": ["a", "b"] * 500}, use_dictionary=["y"])
    metadata = pyarrow.parquet.read_metadata(path)
    with open(path, "rb") as file:
        sizes = list(page_sizes(file))
    assert len(sizes) == 3  # numbers, a dictionary, and places in it
    assert 8000 <= sizes[0] < 8100
    declared = [metadata.row_group(0).column(place).total_uncompressed_size for place in (0, 1)]
    assert sum(sizes) < sum(declared) < sum(sizes) + 200  # the latter counts the headers


def test_parquet_pages_are_refused_by_their_declared_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_table, "_MAX_PAGE", 2**20)
    texts = {"label": ["x" * 2**22]}
    path = parquet(tmp_path / "a.parquet", texts, compression="zstd", use_dictionary=False, write_statistics=False)
    assert path.stat().st_size < 5000
    assert "declares pages that are too large" in refused(lambda: read_columns(path))


def test_a_value_that_millions_of_rows_share_is_refused_by_the_number_of_cells(tmp_path: Path) -> None:
    column = pyarrow.DictionaryArray.from_arrays(np.zeros(2_000_000, np.int8), ["cat"])
    path = parquet(tmp_path / "a.parquet", {"label": column})
    assert path.stat().st_size < 10_000
    with small_machine(256):
        assert "declares 2000000 cells" in refused(lambda: read_columns(path))


def test_lists_and_long_texts_are_refused(tmp_path: Path) -> None:
    lists = parquet(tmp_path / "a.parquet", {"label": ["a"], "box": [[1, 2]]})
    assert "The column 'box' of" in refused(lambda: read_columns(lists))
    long = parquet(tmp_path / "b.parquet", {"label": ["a" * 200_000]})
    assert "a text of more than 131072 characters" in refused(lambda: read_columns(long))


@pytest.mark.parametrize(
    ("sound", "damaged"),
    [
        (b"\xfe0\x01", b"\xfe0\x07"),  # the place of a word, of which there are two
        (b"\x02\x18\x05label", b"\x00\x18\x05label"),  # no cell may be missing, as if the statistics were of others
        (struct.pack("<q", 1000), struct.pack("<q", 2**62)),  # the year 146,000
    ],
)
def test_what_a_sound_parquet_file_cannot_have_is_one_sentence(sound: bytes, damaged: bytes, tmp_path: Path) -> None:
    """The first was a traceback, and so was the last; in the second case pyarrow ended the whole process."""
    columns = {"label": ["cat"] + ["dog"] * 31, "when": pyarrow.array([1000] * 32, pyarrow.timestamp("us"))}
    path = parquet(tmp_path / "a.parquet", columns, compression="none", write_statistics=False)
    raw = path.read_bytes()
    assert raw.count(sound) == 1
    path.write_bytes(raw.replace(sound, damaged))
    assert "cannot be read as parquet" in refused(lambda: read_columns(path), 128)


# --- tables ---


def wide(path: Path, columns: int) -> Path:
    header = ["label", *(f"c{number}" for number in range(columns - 1))]
    rows = [[str(row % 2), *(["0.5"] * (columns - 1))] for row in range(4)]
    path.write_text("\n".join(",".join(line) for line in [header, *rows]) + "\n")
    return path


def test_wide_tables_are_read_in_linear_time(tmp_path: Path) -> None:
    """Twice a quadratic step over 60,000 columns would take minutes."""
    begin = time.process_time()
    columns = read_columns(wide(tmp_path / "wide.csv", 60_000))
    names = list(columns)[1:]
    encoder = TableEncoder.model_construct(columns=())
    assert len(columns) == 60_000
    with pytest.raises(UserError, match="columns that the model does not know"):
        encoder._by_name([tuple("0" for _ in names)], names)
    assert time.process_time() - begin < 5
    assert f"more than {MAX_COLUMNS}" in refused(lambda: read_columns(wide(tmp_path / "wider.csv", MAX_COLUMNS + 1)))
