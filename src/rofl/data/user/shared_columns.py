"""Columns that the tables of several sites share: each site's description, and the agreement on a common encoder.

Only aggregates leave a site: the rounded mean and standard deviation of a number column, and values that many rows
share. All sites then use the same encoder; a column that a site's table lacks has missing values there.
"""

from collections import Counter
from collections.abc import Sequence
from math import isfinite
from statistics import median

from rofl.data.user.encoders import Encoder, encoder_from_json
from rofl.data.user.names import list_some, natural
from rofl.data.user.table_columns import (
    CategoryColumn,
    Column,
    NumberColumn,
    SkippedColumn,
    clean_cell,
    parse_numbers,
)
from rofl.data.user.table_encoder import Rows, TableEncoder
from rofl.data.user.text_encoder import TextEncoder
from rofl.errors import UserError

_DIGITS = 3  # of means and spreads that leave a site
_MOST_COLUMNS, _MOST_VALUES, _LONGEST_NAME = 1000, 100, 200
_MOST_TEXT = 400_000  # characters of an encoder as JSON


def describe_columns(encoder: Encoder, names: Sequence[str], rows: Rows, fewest: int) -> Encoder:
    """Return a site's encoder in the form that may leave the site.

    Args:
        encoder: Fitted on the site's rows.
        names: The columns of `rows`.
        rows: The cells of the site's training rows.
        fewest: The least number of rows behind a value or a mean that leaves the site.
    """
    if isinstance(encoder, TextEncoder):
        return TextEncoder(length=encoder.length)
    texts = {name: [clean_cell(row[place]) for row in rows] for place, name in enumerate(names)}
    columns: list[NumberColumn | CategoryColumn | SkippedColumn] = []
    for column in encoder.columns:
        counts = Counter(texts[column.name])
        if isinstance(column, CategoryColumn):
            often = tuple(value for value in column.values if counts[value] >= fewest)
            columns.append(CategoryColumn(name=column.name, values=often))
        elif isinstance(column, NumberColumn) and len(rows) - counts[""] >= fewest:
            columns.append(NumberColumn(name=column.name, mean=_rounded(column.mean), scale=_rounded(column.scale)))
        else:
            columns.append(SkippedColumn(name=column.name))
    return TableEncoder(columns=tuple(columns))


def parse_columns(text: str) -> Encoder:
    """Return the encoder that a site or a coordinator sent.

    Raises:
        UserError: If it is not an encoder, has too many or too long columns, or unprintable names.
    """
    if len(text) > _MOST_TEXT:
        raise UserError("The columns are too many.")
    try:
        encoder = encoder_from_json(text)
    except (RecursionError, ValueError) as error:  # ValueError: a number of thousands of digits
        raise UserError("The columns cannot be read.") from error
    if isinstance(encoder, TextEncoder):
        if encoder.tokenizer:
            raise UserError("Texts of a federation are hashed, and need no tokenizer.")
        return encoder
    shown = list(encoder.names)
    for column in encoder.columns:
        if isinstance(column, CategoryColumn):
            shown += column.values
            if len(column.values) > _MOST_VALUES:
                raise UserError("A column has too many values.")
        if isinstance(column, NumberColumn) and not (isfinite(column.mean) and isfinite(column.scale)):
            raise UserError("The mean or spread of a column is not finite.")
    if len(encoder.columns) > _MOST_COLUMNS or any(not _is_name(name) for name in shown):
        raise UserError("The columns are too many, or have names that cannot be used.")
    return encoder


def agree_on_columns(encoders: Sequence[Encoder]) -> Encoder:
    """Return the encoder for all sites: columns that more than half of them have, with median means and deviations.

    A single site can neither add nor remove a column, nor move its mean far.

    Args:
        encoders: The description of each site.

    Raises:
        UserError: If no column remains.
    """
    texts = [each for each in encoders if isinstance(each, TextEncoder)]
    if 2 * len(texts) > len(encoders):
        return texts[0]
    tables = [each for each in encoders if isinstance(each, TableEncoder) and each.columns]
    found: dict[str, list[NumberColumn | CategoryColumn]] = {}
    for table in tables:
        for column in table.used:
            found.setdefault(column.name, []).append(column)
    columns: list[NumberColumn | CategoryColumn] = []
    for name in sorted(found, key=natural):
        numbers = [column for column in found[name] if isinstance(column, NumberColumn)]
        categories = [column for column in found[name] if isinstance(column, CategoryColumn)]
        if 2 * len(numbers) > len(tables):
            mean, scale = median(each.mean for each in numbers), median(each.scale for each in numbers)
            columns.append(NumberColumn(name=name, mean=mean, scale=scale))
        elif 2 * len(categories) > len(tables):
            counts = Counter(value for each in categories for value in each.values)
            often = sorted(counts, key=lambda value: (-counts[value], natural(value)))[:_MOST_VALUES]
            columns.append(CategoryColumn(name=name, values=tuple(sorted(often, key=natural))))
    if not any(isinstance(column, NumberColumn) or column.values for column in columns):
        raise UserError("The tables of the sites have no column in common.", "the same names of columns everywhere")
    return TableEncoder(columns=tuple(columns))


def count_features(encoder: Encoder) -> int:
    """Return the number of network inputs of a row."""
    return int(encoder.transform([]).shape[1])


def align_rows(encoder: Encoder, names: Sequence[str], rows: Rows, fewest: int = 0) -> tuple[Encoder, Rows, list[str]]:
    """Return rows in the agreed columns; absent columns, and texts in number columns, become missing values.

    Rare values become missing too: otherwise a column could single out one patient, whose feature is 0 in all other
    rows, and a sum would reveal the label.

    Args:
        encoder: The agreed encoder.
        names: The columns of `rows`.
        rows: The cells of each row.
        fewest: Values in fewer rows become missing, and so do columns with fewer numbers.

    Returns:
        The encoder, with this table's other columns marked as unused, the rows in its columns, and notes for readers.
    """
    if isinstance(encoder, TextEncoder):
        return encoder, rows, []
    known, kinds = {name: place for place, name in enumerate(names)}, {each.name: each for each in encoder.columns}
    other = [name for name in names if name not in kinds]
    cells = [
        [""] * len(rows) if name not in known else _shared_cells(each, [row[known[name]] for row in rows], fewest)
        for name, each in kinds.items()
    ]
    aligned = list(zip(*cells, *[[""] * len(rows)] * len(other), strict=True))
    notes = []
    if other:
        notes.append(f"Columns that are not agreed on were left out: {list_some(other)}.")
    if lacking := [name for name in kinds if name not in known]:
        notes.append(f"Columns of the federation that this table lacks: {list_some(lacking)}.")
    skipped = tuple(SkippedColumn(name=name) for name in other)
    return TableEncoder(columns=(*encoder.columns, *skipped)), aligned, notes


def _shared_cells(column: Column, texts: Sequence[str], fewest: int) -> list[str]:
    """Return the cells of one column; unusable and rare values become missing."""
    cells = [clean_cell(text) for text in texts]
    if isinstance(column, NumberColumn):
        cells = ["" if parse_numbers([cell]) is None else cell for cell in cells]
        return cells if sum(cell != "" for cell in cells) >= fewest else [""] * len(cells)
    counts = Counter(cells)
    return [cell if counts[cell] >= fewest else "" for cell in cells]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and name.isprintable()
