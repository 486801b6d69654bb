"""What ends a run and is no fault of the program: a mistake that is the user's to mend, and the user's wish."""

import difflib
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """A mistake in the input, in one sentence, with the next thing to try. Never shown with a traceback."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        self.sentence = sentence
        self.hint = hint
        super().__init__(f"{sentence} Try: {hint}" if hint else sentence)


class Interrupted(Exception):
    """The run was stopped by the user; its checkpoint is written."""

    def __init__(self, index: int, folder: Path) -> None:
        self.index, self.folder = index, folder
        super().__init__(f"stopped after round {index}")


def unknown(what: str, name: str, names: Iterable[str]) -> UserError:
    """Return the error of an unknown name, which suggests the nearest right one.

    Args:
        what: what the name stands for, such as "preset".
        name: the name that is unknown.
        names: all that are known.

    >>> str(unknown("preset", "digit", ["digits", "mnist"]))
    "There is no preset 'digit'. Try: 'digits' (there are: digits, mnist)"
    """
    choices = sorted(names)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.4)
    listed = f"there are: {', '.join(choices)}"
    return UserError(f"There is no {what} {name!r}.", f"{near[0]!r} ({listed})" if near else listed)
