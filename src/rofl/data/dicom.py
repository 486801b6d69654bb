"""DICOM images, read with pydicom: only the pixels, nothing about the patient."""

import io
from typing import Any

import numpy as np
from PIL import Image

_MAGIC, _MAGIC_AT = b"DICM", 128
_DEFLATED = b"1.2.840.10008.1.2.1.99"  # a transfer syntax; its text is in every file that uses it
_PIXELS = 0x7FE00010  # the tag of the pixels; all other image attributes come before it
_MOST_HEADER = 2**21  # bytes before the pixels: pydicom takes seconds for a million bytes of tiny elements
_LOW, _HIGH = 0.5, 99.5  # percentiles of grey values that become black and white if the file names no window
_TAGS = (  # all that is read of a file
    "Rows",
    "Columns",
    "NumberOfFrames",
    "SamplesPerPixel",
    "PhotometricInterpretation",
)


class UnsupportedImageError(Exception):
    """An image of an unsupported kind; the message is the reason, in a few words."""


def is_dicom(raw: bytes) -> bool:
    """Return whether the content of a file is DICOM.

    >>> is_dicom(bytes(128) + b"DICM"), is_dicom(b"DICM")
    (True, False)
    """
    return raw[_MAGIC_AT : _MAGIC_AT + len(_MAGIC)] == _MAGIC


def dicom_header(raw: bytes) -> tuple[tuple[int, int], str]:
    """Return width and height, and PIL's mode ("L" or "RGB"), without decoding pixels.

    Raises:
        UnsupportedImageError: pydicom is not installed, or the file has no image or several.
        Exception: any error of pydicom for a damaged file.
    """
    if _DEFLATED in raw:  # it could inflate to any size before its header can be checked
        raise UnsupportedImageError("deflated DICOM")
    begin = io.BytesIO(raw[:_MOST_HEADER])
    header = _pydicom().dcmread(begin, stop_before_pixels=True, specific_tags=list(_TAGS))
    if len(raw) > _MOST_HEADER and begin.tell() >= _MOST_HEADER:
        raise UnsupportedImageError("too much before its pixels")
    frames = int(header.get("NumberOfFrames") or 1)
    if frames > 1:
        raise UnsupportedImageError(f"{frames} frames in one file")
    if not header.get("Rows") or not header.get("Columns"):
        raise UnsupportedImageError("no image in it")
    mode = "RGB" if int(header.get("SamplesPerPixel") or 1) == 3 else "L"
    return (int(header.Columns), int(header.Rows)), mode


def read_dicom(raw: bytes) -> Image.Image:
    """Return the pixels in 8-bit grey or RGB, as a viewer shows them.

    Grey values go through the modality's rescaling and the file's first window; if it has none, the 0.5th and the
    99.5th percentile become black and white. MONOCHROME1 is inverted, so that larger values are always brighter.

    Raises:
        UnsupportedImageError: see `dicom_header`, or the pixels are compressed in a way that needs another package.
        Exception: any error of pydicom for a damaged file.
    """
    dicom_header(raw)
    content: Any = _pydicom().filereader.read_partial(io.BytesIO(raw), stop_when=lambda tag, vr, length: tag > _PIXELS)
    if not hasattr(content.file_meta, "TransferSyntaxUID"):
        raise UnsupportedImageError("no transfer syntax")
    try:
        pixels = content.pixel_array
    except (RuntimeError, NotImplementedError) as error:  # no decoder for this compression
        raise UnsupportedImageError("compressed in a way that pydicom cannot read by itself") from error
    if pixels.ndim == 3:
        return Image.fromarray(_colours(content, pixels))
    return Image.fromarray(_grey(content, pixels))


def _grey(content: Any, pixels: np.ndarray) -> np.ndarray:
    """Return grey values (H, W) as uint8."""
    from pydicom.pixels import apply_modality_lut, apply_voi_lut

    values = apply_modality_lut(pixels, content)
    if content.get("WindowWidth") is not None or "VOILUTSequence" in content:
        values = np.asarray(apply_voi_lut(values, content), dtype=np.float64)
        low, high = float(values.min()), float(values.max())
    else:
        values = np.asarray(values, dtype=np.float64)
        low, high = np.percentile(values, [_LOW, _HIGH]).tolist()
        if low == high:  # an image of one value, but for a few pixels
            low, high = float(values.min()), float(values.max())
    scaled = (values - low) / max(high - low, 1e-9)
    if content.PhotometricInterpretation == "MONOCHROME1":
        scaled = 1 - scaled
    rounded: np.ndarray = np.rint(scaled.clip(0, 1) * 255).astype(np.uint8)
    return rounded


def _colours(content: Any, pixels: np.ndarray) -> np.ndarray:
    """Return colours (H, W, 3) as uint8."""
    from pydicom.pixels import convert_color_space

    kind = content.PhotometricInterpretation
    rgb = pixels if kind == "RGB" else convert_color_space(pixels, kind, "RGB")
    bits = int(content.BitsStored)
    return (rgb >> (bits - 8)).astype(np.uint8) if bits > 8 else rgb.astype(np.uint8)


def _pydicom() -> Any:
    try:
        import pydicom
    except ImportError as error:
        raise UnsupportedImageError("DICOM, which needs pydicom: pip install 'fed-noisy-labels[dicom]'") from error
    return pydicom
