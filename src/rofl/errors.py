"""The one error that is the user's to mend."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in the input, in one sentence, with the next thing to try. Never shown with a traceback."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        self.sentence = sentence
        self.hint = hint
        super().__init__(f"{sentence} Try: {hint}" if hint else sentence)


def unknown(what: str, name: str, names: Iterable[str]) -> UserError:
    """An unknown name, with the nearest right one.

    >>> str(unknown("preset", "digit", ["digits", "mnist"]))
    "There is no preset 'digit'. Try: 'digits' (there are: digits, mnist)"
    """
    choices = sorted(names)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.4)
    listed = f"there are: {', '.join(choices)}"
    return UserError(f"There is no {what} {name!r}.", f"{near[0]!r} ({listed})" if near else listed)
