"""A source of user data: its path and options, and the listing of its samples."""

from dataclasses import dataclass, replace
from pathlib import Path

from rofl.data.user import arrow_listing, columns, image_folder, npz, table_listing
from rofl.data.user.names import list_some
from rofl.data.user.samples import Listing
from rofl.errors import UserError

SUFFIXES = (*columns.SUFFIXES, ".npz")  # of files; any other source is a folder
MOST_SIDE = 64  # pixels, if the side is chosen: training a whole network on larger images takes too long
MOST_PIXELS = 8_000_000  # of all images: the smallest network then gives a result in about 10 minutes on two cores
_FORMS = "a folder of images, a .csv or .parquet file, or an .npz file"


@dataclass(frozen=True)
class UserSource:
    """The path of user data, and the options for reading it.

    Attributes:
        path: a folder, or a .csv, .parquet or .npz file.
        test_path: the test part; "" if it is in `path`, or to hold one out.
        holdout: the share of each client's samples that is held out.
        side: pixels of the square images; 0 to choose from their sizes and their number.
        channels: 1 for grey, 3 for colours; 0 to choose from their pixels.
        fingerprint: the expected fingerprint; "" for any.
        classes: all classes, some of which may have no sample here; () for those that occur.
        most_pixels: of all images together, if the side is chosen and above 32; 0 for no limit.
        most_side: the largest side in pixels, if the side is chosen.
        tokenizer: of texts: the path of a tokenizer.json or of its folder; "" to hash words.
        columns: the encoder of a table as the sites of a federation agreed on it, as JSON; "" to fit one.
        min_rows: for agreed columns: values in fewer rows, and columns with fewer numbers, count as missing.
        one_class: whether all samples may have one class, as at a site of a federation with more classes.
    """

    path: str
    test_path: str = ""
    holdout: float = 0.2
    side: int = 0
    channels: int = 0
    fingerprint: str = ""
    classes: tuple[str, ...] = ()
    most_pixels: int = MOST_PIXELS
    tokenizer: str = ""
    most_side: int = MOST_SIDE
    columns: str = ""
    min_rows: int = 0
    one_class: bool = False


def list_samples(source: UserSource) -> Listing:
    """Return the samples of the path and, if there is one, of the test path; nothing is decoded.

    Raises:
        UserError: a path cannot be read, or the two do not match.
    """
    listing = _list_path(Path(source.path))
    if not source.test_path:
        return listing
    other = _list_path(Path(source.test_path))
    if any(sample.test for sample in listing.samples):
        raise UserError(f"There are two test parts: one in {source.path}, and {source.test_path}.", "one of them")
    if listing.features != other.features:
        raise UserError(
            f"{source.test_path} has other columns than {source.path}: {list_some(other.features) or 'images'}, not "
            f"{list_some(listing.features) or 'images'}."
        )
    tests = [replace(sample, id=f"test:{sample.id}", client=None, test=True) for sample in other.samples]
    return Listing(listing.samples + tests, listing.notes + other.notes, listing.features)


def _list_path(path: Path) -> Listing:
    """Return the samples of a folder or file; its suffix and columns determine the form."""
    suffix = path.suffix.casefold()
    if path.is_dir() and arrow_listing.is_hf_folder(path):
        return arrow_listing.list_hf_folder(path)
    if path.is_dir():
        return image_folder.read_image_folder(path)
    if not path.exists():
        raise UserError(f"There is no {path}.", _FORMS)
    if suffix == ".npz":
        return npz.read_npz(path)
    if suffix not in columns.SUFFIXES:
        raise UserError(f"{path} is not in a known form.", _FORMS)
    cells = columns.read_columns(path)
    return table_listing.read_manifest(path, cells) if "path" in cells else table_listing.read_table(path, cells)
