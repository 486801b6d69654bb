"""Escaping of CSV cells that a spreadsheet would run as a formula.

A class called `=HYPERLINK(...)` would otherwise run when the file is opened. Such cells get a leading apostrophe, as
OWASP recommends; plain numbers do not need one.
"""

import re

_WIDE = "\uff1d\uff0b\uff0d\uff20"  # the full-width forms of = + - @, which some spreadsheets accept too
_STARTS = f"=+\\-@\t\r\n{_WIDE}"
_FORMULA = re.compile(f"'*[{_STARTS}]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def escape_cell(text: str) -> str:
    """Return a cell with a leading apostrophe if a spreadsheet would run it.

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
