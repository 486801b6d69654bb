"""Safe reading of .npz files: declared sizes are checked before anything is unpacked; nothing is unpickled.

`numpy.load` allocates the memory that an array's header declares, however small the file is, and unpacks members that
are not needed.
"""

import math
import warnings
import zipfile
from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from rofl.data.regular_file import memory_budget, open_regular

_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # as numpy writes; others may unpack to any size at once
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_array_archive(path: Path, names: Collection[str]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return some arrays of an .npz file, and the names of all.

    Args:
        path: the file.
        names: the arrays to read, if the file has them.

    Raises:
        OSError: the file is not a regular file, or is too large.
        ValueError: it is damaged, holds Python objects, or declares more than half of the memory. The text fits into
            brackets.
    """
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
                wanted = {name: members[name] for name in names if name in members}
                _check_sizes(wanted)
                return {name: _read_member(archive, member) for name, member in wanted.items()}, list(members)
        except OSError:
            raise
        except Exception as error:  # zipfile, zlib and numpy raise many types of errors on untrusted bytes
            raise ValueError(str(error) or type(error).__name__) from error


def _check_sizes(members: dict[str, zipfile.ZipInfo]) -> None:
    """Raise a ValueError for unusual compression, or if arrays declare more bytes than may be read."""
    for name, member in members.items():
        if member.compress_type not in _COMPRESSIONS:
            raise ValueError(f"{name} is compressed in a way that numpy does not use")
    total = sum(member.file_size for member in members.values())
    if total > memory_budget():
        raise ValueError(f"its arrays have {total} bytes, more than {memory_budget()}")


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Return one array, after its header was compared with the size of the member."""
    with archive.open(member) as file:
        version = npy.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"{member.filename} has the version {version}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers that Python 2 wrote
            shape, fortran_order, dtype = _HEADERS[version](file)
        if dtype.hasobject:
            raise ValueError(f"{member.filename} holds Python objects")
        if any(length < 0 for length in shape):
            raise ValueError(f"{member.filename} has the shape {shape}")
        size, held = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
        if size != held:
            raise ValueError(f"{member.filename} declares {size} bytes and holds {held}")
        return np.frombuffer(file.read(), dtype).reshape(shape, order="F" if fortran_order else "C")
