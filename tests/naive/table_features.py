"""Features of a table cell by cell, as rofl 0.1 wrote them out: the twin of scikit-learn's encoders."""

import math
import re

MISSING = ("", "na", "n/a", "nan", "null", "none", "?")


def features(rows: list[tuple[str, ...]], train: list[int]) -> list[list[float]]:
    """Return the features of each row."""
    result: list[list[float]] = [[] for _ in rows]
    for place in range(len(rows[0])):
        texts = [row[place].strip() for row in rows]
        texts = ["" if text.casefold() in MISSING else text for text in texts]
        for row, values in enumerate(column_features(texts, train)):
            result[row] += values
    return result


def column_features(texts: list[str], train: list[int]) -> list[list[float]]:
    """Return the features of one column, row by row."""
    if all(is_number(text) for text in texts if text):
        numbers = [float(text) if text and math.isfinite(float(text)) else None for text in texts]
        known = [number for row in train if (number := numbers[row]) is not None]
        mean = math.fsum(known) / len(known) if known else 0.0
        variance = math.fsum((number - mean) ** 2 for number in known) / len(known) if known else 0.0
        deviation = math.sqrt(variance) if len(set(known)) > 1 else 1.0
        scaled = [0.0 if number is None else (number - mean) / deviation for number in numbers]
        return [[max(-1e6, min(1e6, number))] for number in scaled]
    kinds = sorted({texts[row] for row in train} - {""}, key=in_order)
    if len(kinds) > 100:
        return [[] for _ in texts]
    return [[1.0 if text == kind else 0.0 for kind in kinds] for text in texts]


def is_number(text: str) -> bool:
    """Return whether a cell is a number for Python."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def in_order(text: str) -> tuple[list[object], str]:
    """Return a sort key in which digits compare as numbers."""
    pieces = re.split(r"(\d+)", text)
    return [(len(p.lstrip("0")), p.lstrip("0")) if n % 2 else p for n, p in enumerate(pieces)], text
