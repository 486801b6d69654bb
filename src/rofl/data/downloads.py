"""The folder of data sets, and downloads into it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from rofl.errors import UserError

_ALLOWED = ContextVar("downloads_allowed", default=True)


@contextmanager
def downloads_allowed(allowed: bool) -> Iterator[None]:
    """Allow or forbid downloads inside the block."""
    token = _ALLOWED.set(allowed)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


@dataclass(frozen=True)
class RemoteFile:
    """A public file with its checksum."""

    name: str
    url: str
    checksum: str  # "md5:..." or "sha256:..."


def data_dir(folder: Path | None) -> Path:
    """Return the folder of all data sets: the given one, else $ROFL_DATA, else the user's cache folder."""
    if folder is not None:
        return folder
    import pooch

    from_environment = os.environ.get("ROFL_DATA")
    return Path(from_environment) if from_environment else Path(pooch.os_cache("rofl"))


def fetch(
    folder: Path, remote: RemoteFile, otherwise: str = "point --data-dir or ROFL_DATA at a folder that has it"
) -> Path:
    """Return the path of a file in the folder; a missing file is downloaded and its checksum verified.

    Args:
        folder: of one data set.
        remote: the file.
        otherwise: the end of the hint if the download fails.

    Raises:
        UserError: the file is missing and cannot be downloaded.
    """
    path = folder / remote.name
    if path.is_file():
        return path
    if not _ALLOWED.get():
        raise UserError(f"{remote.name} is not in {folder}, and nothing is downloaded here.", otherwise)
    import pooch

    try:
        pooch.retrieve(remote.url, known_hash=remote.checksum, path=folder, fname=remote.name, progressbar=False)
    except Exception as error:  # pooch passes on any error of its transport: no network, 404, wrong hash
        raise UserError(
            f"{remote.name} is not in {folder} and could not be downloaded ({type(error).__name__}).",
            f"put {remote.name} from {remote.url} there, or {otherwise}",
        ) from error
    return path
