"""Unlabelled samples of user data, for predictions."""

from pathlib import Path

from rofl.data.user import columns, image_folder, npz, table_listing
from rofl.data.user.arrow_listing import NO_LABEL, is_hf_folder, list_hf_folder
from rofl.data.user.names import printable
from rofl.data.user.samples import Listing, Sample
from rofl.errors import UserError

_FORMS = "an image, a folder of images, a .csv or .parquet file, or an .npz file"


def list_unlabelled(path: Path) -> Listing:
    """Return the samples of a path in their order; labels, clients and parts are not read.

    Args:
        path: an image, a folder with images at any depth, a manifest with a column `path`, an .npz file with `images`,
            a table, or a Hugging Face folder of `save_to_disk`.

    Raises:
        UserError: the path cannot be read, or holds no samples.
    """
    suffix = path.suffix.casefold()
    if path.is_dir() and is_hf_folder(path):
        return list_hf_folder(path, labelled=False)
    if path.is_dir():
        return Listing([_sample(printable(name), path / name) for name in image_folder.image_names(path)])
    if not path.exists():
        raise UserError(f"There is no {path}.", _FORMS)
    if suffix in image_folder.SUFFIXES:
        return Listing([_sample(printable(path.name), path)])
    if suffix == ".npz":
        return Listing(
            [Sample(str(row), NO_LABEL, None, False, image) for row, image in enumerate(npz.read_npz_images(path))]
        )
    if suffix not in columns.SUFFIXES:
        raise UserError(f"{path} is not in a known form.", _FORMS)
    cells = columns.read_columns(path)
    rows = len(next(iter(cells.values())))
    kept = {name: column for name, column in cells.items() if name not in ("label", "client", "part")}
    kept["label"] = [NO_LABEL] * rows
    return table_listing.read_manifest(path, kept) if "path" in cells else table_listing.read_table(path, kept)


def _sample(name: str, path: Path) -> Sample:
    return Sample(name, NO_LABEL, None, False, path)
