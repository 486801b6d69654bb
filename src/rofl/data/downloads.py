"""Where a data set's files lie, and how they get there."""

import os
from dataclasses import dataclass
from pathlib import Path

from rofl.errors import UserError


@dataclass(frozen=True)
class RemoteFile:
    """One public file."""

    name: str
    url: str
    checksum: str  # "md5:..." or "sha256:..."


def data_dir(chosen: Path | None) -> Path:
    """The folder of all data sets: the chosen one, else $ROFL_DATA, else a cache folder of the user's."""
    if chosen is not None:
        return chosen
    import pooch

    from_environment = os.environ.get("ROFL_DATA")
    return Path(from_environment) if from_environment else Path(pooch.os_cache("rofl"))


def fetch(
    folder: Path, remote: RemoteFile, otherwise: str = "point --data-dir or ROFL_DATA at a folder that has it"
) -> Path:
    """The file in the folder, downloaded and checked where it is absent; `otherwise` ends the hint where it cannot."""
    path = folder / remote.name
    if path.is_file():
        return path
    import pooch

    try:
        pooch.retrieve(remote.url, known_hash=remote.checksum, path=folder, fname=remote.name, progressbar=False)
    except Exception as error:  # pooch passes on whatever its transport raises: no network, 404, wrong hash
        raise UserError(
            f"{remote.name} is not in {folder} and could not be downloaded ({type(error).__name__}).",
            f"put {remote.name} from {remote.url} there, or {otherwise}",
        ) from error
    return path
