"""Names of a user's own clients, classes and files: cleaned, in the order people expect, and safe on a disk."""

import re
import unicodedata
from collections.abc import Iterable

_LONGEST = 80  # characters of a file name


def clean(name: object) -> str:
    """A name without stray spaces; letters with accents in one form, since macOS and Linux write them differently.

    >>> clean("  cat ")
    'cat'
    """
    return unicodedata.normalize("NFC", printable(str(name))).strip()


def printable(name: str) -> str:
    """A name of a file as a text that can be written; Linux allows bytes that are none."""
    return name.encode("utf-8", "replace").decode()


def natural(name: str) -> tuple[list[object], str]:
    """A key for sorting that puts site 2 before site 10.

    >>> sorted(["site 10", "site 2"], key=natural)
    ['site 2', 'site 10']
    """
    pieces = re.split(r"(\d+)", name)  # text and digits by turns, so that like meets like
    return [_number(piece) if place % 2 else piece for place, piece in enumerate(pieces)], name


def _number(digits: str) -> tuple[int, str]:
    """Sorts as the number does, however long it is."""
    return len(digits.lstrip("0")), digits.lstrip("0")


def safe_names(names: Iterable[str]) -> list[str]:
    """A file name for each, all different even where upper and lower case are the same.

    >>> safe_names(["St. Mary's", "a/b", "A_b", ".."])
    ['St. Mary_s', 'a_b', 'A_b-2', 'client']
    """
    taken: set[str] = set()
    safe = []
    for name in names:
        plain = re.sub(r"[^\w .-]", "_", name).strip(" .")[:_LONGEST] or "client"
        chosen, number = plain, 1
        while chosen.casefold() in taken:
            number += 1
            chosen = f"{plain}-{number}"
        taken.add(chosen.casefold())
        safe.append(chosen)
    return safe


def plural(number: int, what: str) -> str:
    """A number of things.

    >>> plural(1, "image"), plural(2, "image")
    ('1 image', '2 images')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def list_some(names: Iterable[str], most: int = 5) -> str:
    """The first few names, and how many more there are.

    >>> list_some(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
