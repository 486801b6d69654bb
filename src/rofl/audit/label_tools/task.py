"""A suspect as a task for a labelling tool, and the reviewer's answer."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rofl.audit.suspect_list import SuspectRow
from rofl.data.atomic import atomic_write
from rofl.data.originals import Originals
from rofl.data.user.names import safe_names
from rofl.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

IMAGES = "images"  # the folder of pictures in an export
_SHOWN = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp")  # formats that browsers show; others are converted to PNG
_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STEM_LENGTH = 60  # maximum characters of a sample's name in its picture's file name


@dataclass(frozen=True)
class ReviewTask:
    """A suspect to review, with its picture or the cells of its row."""

    suspect: SuspectRow
    picture: str = ""  # file name in the folder of pictures; "" for a row of a table
    size: tuple[int, int] = (0, 0)  # width and height of the picture
    cells: dict[str, str] = field(default_factory=dict)  # cells of a table's row, by column


@dataclass(frozen=True)
class Answer:
    """The class that a person chose for a sample."""

    sample: str  # its name
    given: str  # the label when it was exported; "" if the tool does not keep it
    label: str  # the class that it should have
    client: str = ""


def write_tasks(folder: Path, suspects: Sequence[SuspectRow], originals: Originals) -> list[ReviewTask]:
    """Write the pictures of suspects into a folder in full size, and return a task for each suspect.

    A file that browsers can show is copied unchanged.

    Args:
        folder: the folder of the pictures.
        suspects: the suspects to review.
        originals: their original pictures or rows.

    Raises:
        UserError: a picture cannot be read.
    """
    if originals.images.is_table:
        return [ReviewTask(suspect, cells=originals.cells(suspect.row)) for suspect in suspects]
    return list(_write_pictures(folder, suspects, originals))


def picture_stem(row: int, sample: str) -> str:
    """Return the file name of a picture without its suffix: the sample's number and the safe part of its name.

    >>> picture_stem(12, "north/cat/a b.png")
    '000012-a b'
    """
    name = re.sub(r"\.\w{1,5}$", "", sample.rpartition("/")[2])
    return f"{row:06d}-{safe_names([name])[0][:_STEM_LENGTH].strip()}"


def sample_of_picture(name: str, samples: Sequence[str]) -> str | None:
    """Return the sample whose picture has this name, or None.

    Args:
        name: the file name, with or without leading folders.
        samples: the names of all samples.
    """
    stem = re.sub(r"\.\w{1,5}$", "", name.replace("\\", "/").rpartition("/")[2])
    number = stem.partition("-")[0]
    row = int(number) if number.isascii() and number.isdigit() and len(number) < 12 else len(samples)
    return samples[row] if row < len(samples) and picture_stem(row, samples[row]) == stem else None


def check_xml_names(names: Iterable[str], tool: str) -> None:
    """Raise a UserError for names with characters that are not allowed in XML."""
    for name in names:
        if _NOT_IN_XML.search(name):
            raise UserError(f"The name {name!r} has a character that {tool}'s XML cannot hold.", "another name")


def _write_pictures(folder: Path, suspects: Sequence[SuspectRow], originals: Originals) -> Iterator[ReviewTask]:
    for suspect in suspects:
        file, stem = originals.file(suspect.row), picture_stem(suspect.row, suspect.sample)
        try:
            if file is not None and file.suffix.casefold() in _SHOWN:
                name, raw = stem + file.suffix.casefold(), file.read_bytes()
            else:
                name, raw = f"{stem}.png", _encode_png(originals.picture(suspect.row))
            size = _picture_size(raw)
        except Exception as error:  # PIL's decoders may raise anything
            problem = f"The image of {suspect.sample} cannot be read ({error})."
            raise UserError(problem, "rofl data check PATH") from error
        atomic_write(folder / name, raw)
        yield ReviewTask(suspect, name, size)


def _encode_png(image: "Image.Image") -> bytes:
    encoded = io.BytesIO()
    image.save(encoded, "PNG")
    return encoded.getvalue()


def _picture_size(raw: bytes) -> tuple[int, int]:
    from PIL import Image  # not needed for training

    with Image.open(io.BytesIO(raw)) as image:
        return image.size
