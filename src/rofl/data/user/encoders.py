"""The encoders of tables and of texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from rofl.core.serialization import parse_json
from rofl.data.token_numbers import read_tokenizer
from rofl.data.user.table_encoder import Rows, TableEncoder
from rofl.data.user.text_encoder import TEXT, TextEncoder
from rofl.errors import UserError

Encoder: TypeAlias = TableEncoder | TextEncoder


def fit_encoder(names: Sequence[str], rows: Rows, train: Sequence[int], tokenizer: str = "") -> Encoder:
    """Return the encoder for these columns: a text encoder if the only column is called `text`.

    Args:
        names: the F names of the columns.
        rows: the N rows of F cells each, training rows and others.
        train: the indices of the training rows.
        tokenizer: for texts: the path of a tokenizer.json or of its folder; "" to hash words.
    """
    if tuple(names) == (TEXT,) and tokenizer:
        return TextEncoder(tokenizer=read_tokenizer(Path(tokenizer)))
    return TextEncoder() if tuple(names) == (TEXT,) else TableEncoder.fit(names, rows, train)


def encoder_from_json(text: str) -> Encoder:
    """Return the encoder from the JSON of either kind.

    Raises:
        UserError: the text is not an encoder, or has another format version.
    """
    try:
        content: Any = parse_json(text)
    except ValueError:
        return TableEncoder.from_json(text)  # which words the error
    if not isinstance(content, dict) or content.get("kind") != "text":
        return TableEncoder.from_json(text)
    try:
        return TextEncoder.model_validate(content)
    except ValidationError as error:
        raise UserError(f"The text encoder is damaged ({error.errors()[0]['msg']}).", "run it again") from error
