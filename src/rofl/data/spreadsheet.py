"""Cells of CSV files that people open: a text that a spreadsheet would take for a formula is marked, and read back.

A class called `=HYPERLINK(...)` would otherwise run at whoever opens the list. The mark is an apostrophe in front, as
OWASP recommends; plain numbers need none.
"""

import re

_WIDE = "\uff1d\uff0b\uff0d\uff20"  # the wide forms of = + - @, which some spreadsheets take for the same
_STARTS = f"=+\\-@\t\r\n{_WIDE}"
_FORMULA = re.compile(f"'*[{_STARTS}]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def escape_cell(text: str) -> str:
    """Return a text as it is written: with an apostrophe in front if a spreadsheet would run it.

    >>> escape_cell("=1+1"), escape_cell("-1"), escape_cell("cat")
    ("'=1+1", '-1', 'cat')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unescape_cell(text: str) -> str:
    """Return the text that `escape_cell` was given.

    >>> unescape_cell("'=1+1"), unescape_cell("'s-Hertogenbosch")
    ('=1+1', "'s-Hertogenbosch")
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
