"""Encodes texts as network inputs: words become indices by hashing, so nothing is fitted or shared.

A federation needs no common vocabulary, and no client learns which words another one has. A pretrained network
uses its own tokenizer instead of hashing.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rofl.core.settings import Spec
from rofl.data.token_numbers import BUCKETS, count_tokens, split_words, token_numbers, word_number
from rofl.data.user.names import plural
from rofl.errors import UserError

TEXT = "text"  # the text column: a table without other feature columns is a data set of texts
_LENGTH = 128  # words of a text that are used

Rows = Sequence[tuple[str, ...]]  # the cells of each row


class TextEncoder(Spec):
    """Turns each text into the indices of its first words or tokens.

    Attributes:
        length: the number of words or tokens that are used; later ones are dropped.
        tokenizer: the content of a tokenizer.json; "" to hash words.
    """

    format: Literal[1] = 1
    kind: Literal["text"] = "text"
    length: Annotated[int, Field(ge=1, le=4096)] = _LENGTH
    tokenizer: str = Field("", repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the one column."""
        return (TEXT,)

    def transform(self, rows: Rows, names: Sequence[str] | None = None) -> Tensor:
        """Return word indices, (N, length, 1, 1) float32; 0 is padding.

        Args:
            rows: the cells of each row.
            names: the columns of `rows`; only `text` if None.

        Raises:
            UserError: there is no column `text`.
        """
        place = self._place(names)
        numbers = np.zeros((len(rows), self.length), dtype=np.float32)
        for row, cells in enumerate(rows):
            found = self._numbers(cells[place], self.length)
            numbers[row, : len(found)] = found
        return torch.from_numpy(numbers)[:, :, None, None]

    def notes(self, rows: Rows, names: Sequence[str] | None = None) -> list[str]:
        """Return notes about truncated texts, for the reader of results."""
        place, words = self._place(names), "tokens" if self.tokenizer else "words"
        long = sum(len(self._numbers(cells[place], self.length + 1)) > self.length for cells in rows)
        return [f"Only the first {self.length} {words} were used of {plural(long, 'longer text')}."] if long else []

    @property
    def largest(self) -> int:
        """The largest index of a word or token."""
        return count_tokens(self.tokenizer) if self.tokenizer else BUCKETS - 1

    def to_json(self) -> str:
        """Return the parameters as JSON."""
        return self.model_dump_json(indent=1) + "\n"

    def _numbers(self, text: str, most: int) -> list[int]:
        """Return the indices of a text's first words or tokens, each at least 1."""
        if self.tokenizer:
            return token_numbers(self.tokenizer, text, most)
        return [word_number(word) for word in split_words(text)[:most]]

    def _place(self, names: Sequence[str] | None) -> int:
        columns = self.names if names is None else tuple(names)
        if TEXT not in columns:
            raise UserError(
                f"There is no column {TEXT!r}; there is {', '.join(columns) or 'none'}.", f"a column {TEXT}"
            )
        return columns.index(TEXT)
