"""Errors that the user can fix, and interruption by Ctrl-C."""

import difflib
from collections.abc import Iterable
from pathlib import Path

_LONGEST = 2000  # characters of a sentence
_MOST_LISTED = 30  # names


class UserError(Exception):
    """An error that the user can fix: one sentence, and a hint what to try. Shown without a traceback."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        self.sentence, self.hint = one_line(sentence), one_line(hint)
        super().__init__(f"{self.sentence} Try: {self.hint}" if self.hint else self.sentence)


class Interrupted(Exception):
    """The user stopped the run; its checkpoint is saved."""

    def __init__(self, index: int, folder: Path) -> None:
        self.index, self.folder = index, folder
        super().__init__(f"stopped after round {index}")


def one_line(text: str) -> str:
    r"""Return text that is safe to print: truncated, with control characters escaped.

    Names of files, columns and classes are untrusted, and a terminal executes some control characters.

    >>> one_line("cat\x1b[2J")
    'cat\\x1b[2J'
    """
    shortened = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    plain = shortened.replace("\N{NO-BREAK SPACE}", " ")  # as our own numbers have before a unit
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in plain)


def unknown(what: str, name: str, names: Iterable[str], where: str = "") -> UserError:
    """Return the error for an unknown name, with the nearest known name as a hint.

    Args:
        what: the kind of name, such as "preset".
        name: the unknown name.
        names: all known names; a long list is not printed.
        where: the command or page that lists them, for a long list.

    >>> str(unknown("preset", "digit", ["digits", "mnist"]))
    "There is no preset 'digit'. Try: 'digits' (there are: digits, mnist)"
    """
    choices = sorted(names)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.4)
    listed = f"there are: {', '.join(choices)}"
    if len(choices) > _MOST_LISTED:
        listed = f"there are {len(choices)}" + (f"; {where} lists them" if where else "")
    return UserError(f"There is no {what} {name!r}.", f"{near[0]!r} ({listed})" if near else listed)
