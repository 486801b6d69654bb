"""Texts as numbers: token indices of a pretrained network's tokenizer (tokenizer.json), or word indices by hashing.

Hashing gives the same indices everywhere, without a vocabulary.
"""

import importlib.util
import re
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from rofl.data.regular_file import read_regular
from rofl.errors import UserError

BUCKETS = 8192  # number of indices; 0 is padding
_WORD = re.compile(r"\w+|[^\w\s]")  # words, and single punctuation marks
_MOST_BYTES = 64_000_000  # of a tokenizer.json; those of large vocabularies have 20 million


def read_tokenizer(path: Path) -> str:
    """Return the content of a tokenizer.json, after a check that it can be used.

    Args:
        path: the file, or a folder that has it.

    Raises:
        UserError: it does not exist or is not a tokenizer, or the package tokenizers is not installed.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        content = read_regular(file, _MOST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UserError(
            f"The tokenizer {file} cannot be read ({reason}).", "data.tokenizer=FOLDER with a tokenizer.json"
        ) from error
    _tokenizer(content)
    return content


def token_numbers(tokenizer: str, text: str, length: int) -> list[int]:
    """Return the indices of a text's first tokens, each plus 1; 0 is padding.

    Args:
        tokenizer: the content of a tokenizer.json.
        text: the text.
        length: the largest number of tokens.
    """
    ids: list[int] = _tokenizer(tokenizer).encode(text).ids
    return [number + 1 for number in ids[:length]]


def count_tokens(tokenizer: str) -> int:
    """Return the size of the vocabulary."""
    count: int = _tokenizer(tokenizer).get_vocab_size()
    return count


@lru_cache(maxsize=2)
def _tokenizer(content: str) -> Any:
    if importlib.util.find_spec("tokenizers") is None:
        raise UserError("The package tokenizers is not installed.", "pip install 'fed-noisy-labels[networks]'")
    import tokenizers

    try:
        tokenizer = tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # it raises no more specific type
        raise UserError(f"The tokenizer cannot be used ({error}).", "a tokenizer.json of Hugging Face") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def split_words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, in lower case.

    >>> split_words("Not good, at all!")
    ['not', 'good', ',', 'at', 'all', '!']
    """
    return _WORD.findall(text.casefold())


def word_number(word: str) -> int:
    """Return the index of a word, from 1 to `BUCKETS` - 1; two words may collide.

    >>> word_number("good") == word_number("good"), 0 < word_number("good") < BUCKETS
    (True, True)
    """
    return zlib.crc32(word.encode()) % (BUCKETS - 1) + 1
