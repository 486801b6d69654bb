"""Large pictures for close inspection: links to the image files, or embedded copies."""

import base64
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from rofl.data.originals import Originals
from rofl.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

ImageMode = Literal["thumbnails", "link", "embed"]  # how a page shows large pictures; it always has small copies

_BUDGET = 150_000_000  # characters for all pictures of a page
_EDGES = (1600, 1024, 768, 512, 384, 256)  # pixels of the longer side; the first that fits the budget is used
_SAMPLED = 20  # number of pictures from which the total size is estimated
_SHOWN = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".avif")  # formats that browsers can show


@dataclass(frozen=True)
class LargePictures:
    """One large picture per sample, in the samples' order, as a link or a copy."""

    links: list[str] | None = None  # relative to the page; "" if browsers cannot show the file
    copies: list[str] | None = None  # as data URLs; "" if the file cannot be read


def large_pictures(mode: ImageMode, originals: Originals, rows: Sequence[int], folder: Path) -> LargePictures:
    """Return the large pictures of samples.

    Args:
        mode: no large pictures, links to the files, or copies.
        originals: the original images.
        rows: the rows of the samples.
        folder: the folder of the page; links are relative to it.

    Raises:
        UserError: the images are not files, so they cannot be linked.
    """
    if mode == "link":
        files = [originals.file(row) for row in rows]
        if not any(files):
            raise UserError("The images of this run are not files, so a page cannot link to them.", "--embed")
        return LargePictures(links=["" if file is None else _link(file, folder) for file in files])
    return LargePictures(copies=_copies(originals, rows)) if mode == "embed" else LargePictures()


def _link(file: Path, folder: Path) -> str:
    """Return the URL of a file relative to a folder; absolute if there is no relative path, as between two drives."""
    if file.suffix.casefold() not in _SHOWN:
        return ""
    try:
        return quote(Path(os.path.relpath(file.absolute(), folder.absolute())).as_posix())
    except ValueError:
        return file.absolute().as_uri()


def _copies(originals: Originals, rows: Sequence[int]) -> list[str]:
    sampled = rows[:: -(-len(rows) // _SAMPLED) or 1]
    for edge in _EDGES:
        mean_length = sum(map(len, _encode(originals, sampled, edge))) / max(len(sampled), 1)
        if mean_length * len(rows) <= _BUDGET:
            break  # if none fits, the last and smallest is used
    return list(_encode(originals, rows, edge))


def _encode(originals: Originals, rows: Sequence[int], edge: int) -> Iterator[str]:
    for row in rows:
        try:
            yield _data_url(originals.picture(row), edge)
        except Exception:  # PIL's decoders may raise anything; the card still has its small copy
            yield ""


def _data_url(image: "Image.Image", edge: int) -> str:
    """Return an image as a data URL: unchanged if it is small, else compressed to at most `edge` pixels."""
    small = max(image.size) <= 64
    image.thumbnail((edge, edge))
    file = io.BytesIO()
    if small:
        image.save(file, "PNG")
    else:
        image.save(file, "JPEG", quality=85, optimize=True)
    kind = "png" if small else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
