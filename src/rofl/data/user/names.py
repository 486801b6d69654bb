"""Names of a user's clients, classes and files: cleaned, sorted, and made safe as file names."""

import re
import unicodedata
from collections.abc import Iterable

_LONGEST = 80  # characters of a file name
_MOST_BYTES = 200  # of a file name in UTF-8; file systems allow 255, of which endings take some


def clean(name: object) -> str:
    """Return a name without surrounding spaces, in Unicode form NFC.

    macOS and Linux encode accented letters differently; without NFC one class would become two.

    >>> clean("  cat ")
    'cat'
    """
    return unicodedata.normalize("NFC", printable(str(name))).strip()


def printable(name: str) -> str:
    """Return a name as text that can be encoded in UTF-8.

    Names of files on Linux may hold bytes that cannot, and those of a damaged .npz file numbers that are no characters.
    """
    return name.encode("utf-8", "replace").decode("utf-8", "replace")


def natural(name: str) -> tuple[list[object], str]:
    """Return a sort key that orders digits by value, so that site 2 comes before site 10.

    >>> sorted(["site 10", "site 2"], key=natural)
    ['site 2', 'site 10']
    """
    pieces = re.split(r"(\d+)", name)  # text and digits alternate, so that like is compared with like
    return [_number_key(piece) if place % 2 else piece for place, piece in enumerate(pieces)], name


def _number_key(digits: str) -> tuple[int, str]:
    """Return a key that sorts like the number; `int` refuses thousands of digits."""
    return len(digits.lstrip("0")), digits.lstrip("0")


def safe_names(names: Iterable[str]) -> list[str]:
    """Return a file name for each name; they differ even on case-insensitive file systems.

    >>> safe_names(["St. Mary's", "a/b", "A_b", ".."])
    ['St. Mary_s', 'a_b', 'A_b-2', 'client']
    """
    taken: set[str] = set()
    safe = []
    for name in names:
        base = _shortened(re.sub(r"[^\w .-]", "_", name).strip(" .")).rstrip(" .") or "client"
        candidate, number = base, 1
        while candidate.casefold() in taken:
            number += 1
            candidate = f"{base}-{number}"
        taken.add(candidate.casefold())
        safe.append(candidate)
    return safe


def _shortened(name: str) -> str:
    """Return a name shortened to a file system's limit in bytes; many letters take two to four."""
    return name[:_LONGEST].encode("utf-8", "replace")[:_MOST_BYTES].decode("utf-8", "ignore")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural.

    >>> plural(1, "image"), plural(2, "image")
    ('1 image', '2 images')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def list_some(names: Iterable[str], most: int = 5) -> str:
    """Return the first few names, and how many more there are.

    >>> list_some(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
