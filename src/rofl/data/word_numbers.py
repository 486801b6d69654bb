"""Words as numbers by hashing, the same everywhere without a vocabulary."""

import re
import zlib

BUCKETS = 8192  # different numbers of words; 0 is no word
_WORD = re.compile(r"\w+|[^\w\s]")  # words, and single punctuation marks


def split_words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, in lower case.

    >>> split_words("Not good, at all!")
    ['not', 'good', ',', 'at', 'all', '!']
    """
    return _WORD.findall(text.casefold())


def word_number(word: str) -> int:
    """Return the number of a word, from 1 to `BUCKETS` - 1; two words may share one.

    >>> word_number("good") == word_number("good"), 0 < word_number("good") < BUCKETS
    (True, True)
    """
    return zlib.crc32(word.encode()) % (BUCKETS - 1) + 1
