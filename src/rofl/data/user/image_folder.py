"""Reads image folders: `<client>/<class>/*` or `<class>/*`, and optionally `test/<class>/*` at the top.

`train`, `val` and `test` are parts of the data, in the layout of torchvision and ultralytics.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from rofl.data.user.names import clean, list_some, printable
from rofl.data.user.samples import Listing, Sample
from rofl.errors import UserError

SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".dcm", ".dicom"))
_NOT_DATA = frozenset(
    ("__macosx", "thumbs.db", "desktop.ini")
)  # left behind by operating systems; hidden files are ignored too
_DEEPEST = 5  # levels of folders that are searched
_VALIDATION = frozenset(("val", "valid", "validation"))
_PARTS = frozenset(("train", "test")) | _VALIDATION
_SHAPES = "PATH/<client>/<class>/*.png, or PATH/<class>/*.png"


def read_image_folder(root: Path) -> Listing:
    """Return all images in a folder as samples, with their classes and, if present, their clients.

    Raises:
        UserError: the folder has no images, or its layout is neither of the two.
    """
    images = listed = _list_images(root)
    if not images:
        raise UserError(f"There are no images in {root}.", f"{_SHAPES} (or {', '.join(sorted(SUFFIXES))})")
    held_out, left_out = _held_out_folders(root, images)
    test = [parts for parts in images if parts[0].casefold() in held_out]
    if {len(parts) for parts in test} not in ({3}, {4}):
        test = []  # images directly inside it: a class called "test"
    images = [parts for parts in images if parts[0].casefold() not in left_out]
    train = sorted(set(images) - set(test))
    if not train:
        raise UserError(f"All images in {root} are in its folder test; there is nothing to train with.", _SHAPES)
    above = 1 if {parts[0].casefold() for parts in train} == {"train"} and len(train[0]) > 2 else 0
    with_clients = _depth(root, train, above) == 3
    samples = [_sample(root, parts, parts[-3] if with_clients else None, test=False) for parts in train]
    samples += [_sample(root, parts, None, test=True) for parts in test]
    used = {"/".join(parts[:depth]) for parts in listed for depth in range(1, len(parts))}
    empty = [name for name in _folders(root, above + (2 if with_clients else 1)) if name not in used]
    notes = [f"The folder {name} is not used: the folder test is the test part." for name in sorted(left_out)]
    return Listing(samples, notes + ([f"No images are in {list_some(empty)}."] if empty else []))


def _held_out_folders(root: Path, images: list[tuple[str, ...]]) -> tuple[set[str], set[str]]:
    """Return the top-level folders that are the test part, and those that are not used, in lower case.

    Next to `train`, a validation folder is the test part, unless there is also a folder `test`. Any other folder at the
    top makes all of them, except `test`, clients or classes.

    Raises:
        UserError: the folders are parts of the data, but contain no class folders.
    """
    tops = {parts[0].casefold() for parts in images}
    if not (tops <= _PARTS and "train" in tops and len(tops) > 1):
        return {"test"}, set()
    if {len(parts) for parts in images} == {2}:
        raise UserError(
            f"The folders {', '.join(sorted(tops))} in {root} hold images but no class folders, so none has a label.",
            "PATH/train/<class>/*.png and PATH/test/<class>/*.png, or a .csv file with the columns path, label, part",
        )
    validation = tops & _VALIDATION
    return ({"test"}, validation) if "test" in tops else (validation, set())


def image_names(root: Path) -> list[str]:
    """Return the relative paths of all images in a folder, at any depth.

    Raises:
        UserError: there are none.
    """
    names = ["/".join(parts) for parts in _list_images(root)]
    if not names:
        raise UserError(f"There are no images in {root}.", f"a folder of images ({', '.join(sorted(SUFFIXES))})")
    return names


def _list_images(root: Path) -> list[tuple[str, ...]]:
    """Return the paths of all images below a folder, in parts, sorted."""
    try:
        return sorted(_find_images(root))
    except OSError as error:
        raise UserError(f"{error.filename or root} cannot be opened ({error.strerror}).") from error


def _depth(root: Path, images: list[tuple[str, ...]], above: int) -> int:
    """Return the depth of the images: 2 for `<class>/*`, 3 for `<client>/<class>/*`.

    Args:
        root: the folder, for error messages.
        images: the path of each, in parts.
        above: the number of leading folders to ignore.
    """
    depths = {len(parts) - above: "/".join(parts) for parts in images}
    if 1 in depths:
        raise UserError(f"The image {depths[1]} in {root} is in no class folder.", _SHAPES)
    if max(depths) > 3:
        raise UserError(f"The image {depths[max(depths)]} in {root} is nested too deeply.", _SHAPES)
    if len(depths) > 1:
        raise UserError(
            f"Images lie at two depths in {root}: {depths[2]}, but {depths[3]}.", f"one of {_SHAPES}, not both"
        )
    return max(depths)


def _sample(root: Path, parts: tuple[str, ...], client: str | None, test: bool) -> Sample:
    name = "/".join(parts)
    return Sample(printable(name), clean(parts[-2]), None if client is None else clean(client), test, root / name)


def _find_images(folder: Path | str, depth: int = 1) -> Iterator[tuple[str, ...]]:
    """Yield the paths of image files below a folder, in parts.

    Raises:
        UserError: there is a link, which may point outside the folder or form a cycle.
    """
    with os.scandir(folder) as inside:
        entries = [entry for entry in inside if _is_data(entry.name)]
    for entry in entries:
        if entry.is_symlink():
            raise UserError(f"{entry.path} is a link, and links are not followed.", "a copy of what it leads to")
        if entry.is_dir():
            below = _find_images(entry.path, depth + 1) if depth <= _DEEPEST else ()
            yield from ((entry.name, *parts) for parts in below)
        elif os.path.splitext(entry.name)[1].casefold() in SUFFIXES:
            yield (entry.name,)


def _folders(root: Path, depth: int) -> Iterator[str]:
    """Yield the relative paths of the folders down to a depth."""
    for level in range(1, depth + 1):
        for path in sorted(root.glob("/".join("*" * level))):
            parts = path.relative_to(root).parts
            if path.is_dir() and all(map(_is_data, parts)):
                yield "/".join(parts)


def _is_data(name: str) -> bool:
    """Return whether a file is the user's, not one that an operating system left behind."""
    return not name.startswith(".") and name.casefold() not in _NOT_DATA
