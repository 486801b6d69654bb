"""Formatting of numbers and names as plain text; the templates escape the results."""

import statistics
from collections.abc import Callable, Sequence

UNKNOWN = "\N{EN DASH}"  # stands for a missing value
_GAP = "\N{NO-BREAK SPACE}"
_UNITS = ("B", "kB", "MB", "GB", "TB")


def per_cent(value: float) -> str:
    """Format a value that is already in per cent.

    >>> per_cent(96.25).replace(_GAP, " ")
    '96.2 %'
    """
    return f"{value:.1f}{_GAP}%"


def share(value: float) -> str:
    """Format a ratio in [0, 1] as per cent.

    >>> share(0.4).replace(_GAP, " ")
    '40.0 %'
    """
    return per_cent(100 * value)


def count(value: float) -> str:
    """Format a whole number with thousands separators.

    >>> count(12345)
    '12,345'
    """
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Format a number of bytes in decimal units.

    >>> size(40_120_800).replace(_GAP, " ")
    '40.1 MB'
    """
    power = 0
    while value >= 999.95 and power < len(_UNITS) - 1:  # 999.95 rounds to 1000.0
        value, power = value / 1000, power + 1
    return f"{value:.{min(power, 1)}f}{_GAP}{_UNITS[power]}"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units.

    >>> [duration(value).replace(_GAP, " ") for value in (8.25, 75, 7260)]
    ['8.2 s', '1 min 15 s', '2 h 1 min']
    """
    if seconds < 59.95:
        return f"{seconds:.1f}{_GAP}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{_GAP}min {rest}{_GAP}s"
    return f"{minutes // 60}{_GAP}h {minutes % 60}{_GAP}min"


def shortened(text: str, max_length: int) -> str:
    """Shorten a long name in the middle, because names often differ only in their last letters.

    >>> shortened("species number 17", 13)
    'specie…ber 17'
    """
    if len(text) <= max_length:
        return text
    return f"{text[: max_length // 2]}…{text[len(text) - (max_length - 1) // 2 :]}"


def average(values: Sequence[float | None], form: Callable[[float], str]) -> str:
    """Return the mean, formatted by `form`; a dash if any value is missing.

    >>> average([1.0, 3.0], count), average([1.0, None], count) == UNKNOWN
    ('2', True)
    """
    known = [value for value in values if value is not None]
    return form(statistics.fmean(known)) if known and len(known) == len(values) else UNKNOWN


def with_spread(values: Sequence[float | None], form: Callable[[float], str]) -> str:
    """Return the mean and, for two or more values, the sample standard deviation.

    >>> with_spread([1.0, 3.0], per_cent).replace(_GAP, " ")
    '2.0 ± 1.4 %'
    """
    mean, known = average(values, form), [value for value in values if value is not None]
    if mean == UNKNOWN or len(known) < 2:
        return mean
    return f"{mean.removesuffix(f'{_GAP}%')} ± {form(statistics.stdev(known))}"
