"""Errors that the user can fix, and interruption by Ctrl-C."""

import difflib
from collections.abc import Iterable
from pathlib import Path

_LONGEST = 2000  # characters of a sentence
_MOST_LISTED = 30  # names


class UserError(Exception):
    """A mistake in the input, in one sentence, with the next thing to try. Never shown with a traceback."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        self.sentence, self.hint = one_line(sentence), one_line(hint)
        super().__init__(f"{self.sentence} Try: {self.hint}" if self.hint else self.sentence)


class Interrupted(Exception):
    """The run was stopped by the user; its checkpoint is written."""

    def __init__(self, index: int, folder: Path) -> None:
        self.index, self.folder = index, folder
        super().__init__(f"stopped after round {index}")


def one_line(text: str) -> str:
    r"""Return text that is safe to print: of bounded length, with control characters in Python's spelling.

    Names of files, columns and classes come from elsewhere, and a terminal obeys some characters.

    >>> one_line("cat\x1b[2J")
    'cat\\x1b[2J'
    """
    shortened = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in shortened)


def unknown(what: str, name: str, names: Iterable[str], where: str = "") -> UserError:
    """Return the error of an unknown name, which suggests the nearest right one.

    Args:
        what: what the name stands for, such as "preset".
        name: the name that is unknown.
        names: all that are known; many are not listed.
        where: where they are listed, for names that are many.

    >>> str(unknown("preset", "digit", ["digits", "mnist"]))
    "There is no preset 'digit'. Try: 'digits' (there are: digits, mnist)"
    """
    choices = sorted(names)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.4)
    listed = f"there are: {', '.join(choices)}"
    if len(choices) > _MOST_LISTED:
        listed = f"there are {len(choices)}" + (f"; {where} lists them" if where else "")
    return UserError(f"There is no {what} {name!r}.", f"{near[0]!r} ({listed})" if near else listed)
