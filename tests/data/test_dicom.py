"""DICOM files, written by pydicom itself: windows, bits, colours, and what is refused."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rofl.data.image_io import decode_image, describe_error, inspect_image, open_picture
from rofl.data.user import UserSource, load_user_data

pydicom = pytest.importorskip("pydicom")


def dicom(pixels: np.ndarray, **tags: Any) -> bytes:
    """The content of a DICOM file."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = SecondaryCaptureImageStorage, generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    content = FileDataset("x.dcm", {}, file_meta=meta, preamble=bytes(128))
    content.PatientName = "Secret^Name"
    colours = pixels.ndim == 3
    content.Rows, content.Columns = pixels.shape[:2]
    content.SamplesPerPixel, content.PhotometricInterpretation = (3, "RGB") if colours else (1, "MONOCHROME2")
    if colours:
        content.PlanarConfiguration = 0
    content.BitsAllocated = content.BitsStored = 8 * pixels.dtype.itemsize
    content.HighBit, content.PixelRepresentation = content.BitsStored - 1, int(pixels.dtype.kind == "i")
    for name, value in tags.items():
        setattr(content, name, value)
    content.PixelData = pixels.tobytes()
    file = io.BytesIO()
    content.save_as(file, enforce_file_format=True)
    return file.getvalue()


RAMP = np.arange(64, dtype=np.uint16).reshape(8, 8) * 60  # 0 to 3780: 12 bits in 16


def test_a_window_says_what_is_black_and_white() -> None:
    raw = dicom(RAMP, WindowCenter=1000, WindowWidth=1000, RescaleSlope=1, RescaleIntercept=0)
    pixels = decode_image(raw, 8, 1)[:, :, 0]
    assert (pixels[RAMP <= 480] == 0).all()
    assert (pixels[RAMP >= 1520] == 255).all()
    assert abs(int(pixels.flat[17]) - 133) < 4  # 1020 of 500 to 1500
    assert (np.diff(pixels.flatten().astype(int)) >= 0).all()


def test_without_a_window_the_grey_values_in_use_count() -> None:
    pixels = decode_image(dicom(RAMP), 8, 1)
    assert (pixels.min(), pixels.max()) == (0, 255)
    signed = dicom((RAMP.astype(np.int16) - 1000), RescaleSlope=2, RescaleIntercept=-5)
    assert np.array_equal(decode_image(signed, 8, 1), pixels)  # rescaling by the modality changes nothing here
    inverted = decode_image(dicom(RAMP, PhotometricInterpretation="MONOCHROME1"), 8, 1)
    assert np.array_equal(inverted, 255 - pixels)
    assert np.array_equal(decode_image(dicom(np.full((8, 8), 7, np.uint16)), 8, 1), np.zeros((8, 8, 1), np.uint8))


def test_colours_and_headers() -> None:
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (8, 6, 3), dtype=np.uint8)
    raw = dicom(colours)
    assert np.array_equal(np.asarray(open_picture(raw)), colours)
    assert (inspect_image(raw).size, inspect_image(raw).mode, inspect_image(raw).grey) == ((6, 8), "RGB", False)
    assert (inspect_image(dicom(RAMP)).size, inspect_image(dicom(RAMP)).grey) == ((8, 8), True)


def test_what_is_no_single_image_is_left_out_with_the_reason(tmp_path: Path) -> None:
    several = dicom(RAMP, NumberOfFrames=2)
    assert inspect_image(several).error == "2 frames in one file"
    deflated = dicom(RAMP).replace(b"1.2.840.10008.1.2.1\x00", b"1.2.840.10008.1.2.1.99", 1)
    assert inspect_image(deflated).error == "deflated DICOM"
    far = deflated.replace(b"\x02\x00\x01\x00OB\x00\x00\x02\x00\x00\x00\x00\x01", _element(2, 1, bytes(8000)), 1)
    assert len(far) > len(deflated)
    assert inspect_image(far).error == "deflated DICOM"  # wherever it is said
    huge = dicom(RAMP, Rows=60000, Columns=60000)
    with pytest.raises(Exception, match="60000 x 60000") as caught:
        decode_image(huge, 8, 1)
    assert describe_error(caught.value) == "too large"
    assert inspect_image(dicom(RAMP)[:200]).error
    assert inspect_image(bytes(128) + b"DICM" + b"\xff" * 50).error


def _element(group: int, number: int, value: bytes) -> bytes:
    return struct.pack("<HH2sHI", group, number, b"OB", 0, len(value)) + value


def test_what_stands_around_the_pixels_is_not_read_without_end() -> None:
    """pydicom takes ten minutes and more for hundreds of millions of bytes of tiny elements."""
    raw, pixels = dicom(RAMP), b"\xe0\x7f\x10\x00"
    before = raw.replace(pixels, _element(0x29, 0x1010, bytes(3 * 2**20)) + pixels, 1)
    assert inspect_image(before).error == "too much before its pixels"
    behind = raw + 2**18 * _element(0x7FE1, 1, b"")
    assert np.array_equal(decode_image(behind, 8, 1), decode_image(raw, 8, 1))


def test_without_pydicom_the_reason_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = dicom(RAMP)
    monkeypatch.setitem(__import__("sys").modules, "pydicom", None)
    assert inspect_image(raw).error == "DICOM, which needs pydicom: pip install 'fed-noisy-labels[dicom]'"


def test_a_folder_of_dicom_files_is_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for kind in ("well", "ill"):
        for number in range(5):
            pixels = rng.integers(0, 4096, (12, 10), dtype=np.uint16)
            path = tmp_path / "scans" / kind / f"{number}.dcm"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(dicom(pixels))
    found = load_user_data(UserSource(str(tmp_path / "scans")))
    assert (found.classes, found.shape, len(found.train) + len(found.test)) == (("ill", "well"), (1, 8, 8), 10)
    assert "Secret" not in repr(found)


def test_16_bit_files_keep_their_highest_8_bits(tmp_path: Path) -> None:
    Image.fromarray(RAMP).save(tmp_path / "x.png")
    assert np.array_equal(decode_image(tmp_path / "x.png", 8, 1)[:, :, 0], (RAMP >> 4).astype(np.uint8))
    Image.fromarray(RAMP).save(tmp_path / "x.tif")
    assert np.array_equal(decode_image(tmp_path / "x.tif", 8, 1), decode_image(tmp_path / "x.png", 8, 1))
