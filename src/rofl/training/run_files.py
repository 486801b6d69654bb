"""Reads single files of a run folder; each problem becomes one sentence."""

from pathlib import Path

from pydantic import ValidationError

from rofl.data.regular_file import read_regular
from rofl.errors import UserError


def read_text(path: Path) -> str | None:
    """Return the text of a file, or None where there is none.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return read_regular(path, follow=False).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"{path} cannot be read ({reason}).", "a copy of it as it was") from error


def first_problem(error: Exception) -> str:
    """Return one line about what is wrong with a file."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
