"""Records in JSON files with a format version, read from untrusted files."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rofl.core.serialization import parse_json
from rofl.errors import UserError

_Record = TypeVar("_Record", bound=BaseModel)


def parse_record(kind: type[_Record], text: str, source: str, version: int) -> _Record:
    """Return the record that a JSON text holds.

    Args:
        kind: the record's class.
        text: the JSON.
        source: what it is or where it comes from, the beginning of error messages.
        version: the format version that is read here; the text may lack one.

    Raises:
        UserError: the text is something else, or of another format version.
    """
    try:
        content: Any = parse_json(text)
        found = content.get("format") if isinstance(content, dict) else None
        if isinstance(found, int) and found != version:
            raise UserError(f"{source} has format {found}; this version reads format {version}.")
        return kind.model_validate_json(text)
    except ValueError as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise UserError(f"{source} is damaged ({reason}).", "run it again") from error
