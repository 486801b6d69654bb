"""Safe opening of untrusted image files: few formats, and limits that are checked before decoding.

A file of a few kilobytes can declare an image of gigabytes; an unusual format can start another program or an old
decoder. Both are refused from the header.
"""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from PIL import Image

from rofl.data.dicom import dicom_header, is_dicom, read_dicom

MAX_PIXELS = 64_000_000  # declared pixels of one image; 8000 x 8000
MAX_FILE_BYTES = 2**28  # of one encoded image
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")  # PIL knows forty more, some of which run programs
_LARGE = 4_000_000  # pixels; images above are decoded one at a time, so that threads do not multiply their memory
_one_at_a_time = threading.Lock()


class ImageTooLargeError(Exception):
    """An image declares more pixels than are decoded."""


@contextmanager
def open_encoded(raw: bytes) -> Iterator[Image.Image]:
    """Open an encoded image; its pixels are decoded lazily, inside the block.

    Args:
        raw: the content of the file.

    Raises:
        ImageTooLargeError: its header declares more than `MAX_PIXELS`.
        Exception: any error of PIL's decoders for another format or a damaged file.
    """
    if is_dicom(raw):
        size, _ = dicom_header(raw)
        _check_size(size)
        with _one_at_a_time if size[0] * size[1] > _LARGE else nullcontext():
            yield read_dicom(raw)
        return
    with Image.open(io.BytesIO(raw), formats=FORMATS) as image:
        _check_size(image.size)
        pixels = image.width * image.height
        with _one_at_a_time if pixels > _LARGE else nullcontext():
            yield image


def _check_size(size: tuple[int, int]) -> None:
    if size[0] * size[1] > MAX_PIXELS:
        raise ImageTooLargeError(f"{size[0]} x {size[1]} pixels")
