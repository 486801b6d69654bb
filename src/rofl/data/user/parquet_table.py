"""Reads a parquet file as columns of strings; declared sizes are checked before anything is unpacked."""

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rofl.data.regular_file import memory_budget, open_regular
from rofl.data.user.parquet_pages import page_sizes
from rofl.data.user.table_columns import cell_text
from rofl.errors import UserError

if TYPE_CHECKING:
    import pyarrow
    from pyarrow import parquet

_MAX_PAGE = 2**28  # bytes of a page after decompression; common writers make pages of 1 MB
_CELL_BYTES = 100  # bytes of memory per cell as a string
_MAX_TEXT = 131_072  # characters of a cell, as in a CSV file
_MAX_METADATA = 2**24  # bytes of a text in the footer, and entries of a list in it
_BATCH = 65_536  # rows that are unpacked at once


def read_parquet_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the names and the cells of each column as strings.

    Repeated values are stored once, so a file with many repetitions takes little memory.

    Raises:
        UserError: the file cannot be read, is too large, or has columns that are neither numbers nor texts.
    """
    import pyarrow.parquet as parquet  # slow to import, and only this needs it

    try:
        with open_regular(path) as file:
            footer = parquet.ParquetFile(
                file, thrift_string_size_limit=_MAX_METADATA, thrift_container_size_limit=_MAX_METADATA
            )
            metadata, schema = footer.metadata, footer.schema_arrow
            _check_schema(path, schema)
            _check_sizes(path, metadata, file)
            texts = [field.name for field in schema if _is_text(field.type)]
            reader = parquet.ParquetFile(file, metadata=metadata, read_dictionary=texts, pre_buffer=False)
            columns: list[list[str]] = [[] for _ in schema]
            for batch in reader.iter_batches(_BATCH, use_threads=False):
                batch.validate(full=True)  # a damaged page may have places beyond the words of a column
                for cells, column in zip(columns, batch.columns, strict=True):
                    cells += _to_texts(path, column)
    except (OSError, ValueError, NotImplementedError, OverflowError) as error:  # pyarrow's, and times beyond year 9999
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise UserError(f"{path} cannot be read as parquet ({reason}).") from error
    if sum(sum(map(len, cells)) for cells in columns) > memory_budget():
        raise UserError(f"The texts of {path} do not fit into half of the memory.", "fewer rows or shorter texts")
    return list(schema.names), columns


def _check_schema(path: Path, schema: "pyarrow.Schema") -> None:
    """Refuse columns other than numbers, texts and times: a list column may hold any number of values in one row."""
    from pyarrow import types

    for field in schema:
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        if not (_is_text(kind) or types.is_null(kind) or types.is_primitive(kind) or types.is_decimal(kind)):
            raise UserError(
                f"The column {field.name!r} of {path} has the type {kind}.", "columns of numbers and texts only"
            )


def _check_sizes(path: Path, metadata: "parquet.FileMetaData", file: BinaryIO) -> None:
    """Refuse a file that declares more than fits into memory.

    Raises:
        UserError: it declares too much.
        ValueError: the footer, or the header of a page, is damaged.
    """
    groups = [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]
    cells = max(metadata.num_rows, sum(groups)) * metadata.num_columns
    unpacked = 0
    for size in page_sizes(file):
        unpacked += size
        if size > _MAX_PAGE or unpacked > memory_budget():
            raise UserError(f"{path} declares pages that are too large to be unpacked.", "the same rows as CSV")
    if min(groups, default=0) < 0 or cells * _CELL_BYTES > memory_budget():
        raise UserError(f"{path} declares {cells} cells, which do not fit into half of the memory.", "fewer rows")


def _is_text(kind: "pyarrow.DataType") -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _to_texts(path: Path, column: "pyarrow.Array") -> list[str]:
    """Return cells as strings; rows with the same dictionary entry share one string."""
    from pyarrow import types

    if not types.is_dictionary(column.type):
        return [cell_text(value) for value in column.to_pylist()]
    words = [cell_text(word) for word in column.dictionary.to_pylist()]
    if any(len(word) > _MAX_TEXT for word in words):
        raise UserError(f"{path} has a text of more than {_MAX_TEXT} characters.", "shorter ones")
    return ["" if place is None else words[place] for place in column.indices.to_pylist()]
