"""Conversion of table values to strings."""

import math

_PANDAS_MISSING = ("<NA>", "NaT")


def cell_text(value: object) -> str:
    """Return a value as a string; empty if it is missing.

    Integers have no ".0", which a column of integers with missing values would get.

    >>> cell_text(3.0), cell_text(0.25), cell_text(None)
    ('3', '0.25', '')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return "" if text in _PANDAS_MISSING and not isinstance(value, str) else text
