"""Word indices by hashing, the same everywhere without a vocabulary."""

import re
import zlib

BUCKETS = 8192  # number of indices; 0 is padding
_WORD = re.compile(r"\w+|[^\w\s]")  # words, and single punctuation marks


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
