"""The sizes that the pages of a parquet file declare, read without unpacking anything.

A page of a few bytes can unpack to two gigabytes, and the sizes in the file's footer cannot be trusted. So the header
of every page is read first. Headers are structs of Thrift's compact protocol (parquet-format, PageHeader).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

_HEADER_BYTES = 2**16  # of a page; statistics in it hold the smallest and the largest value
_UNPACKED, _PACKED = 2, 3  # fields of a PageHeader: the page's size after and before decompression
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_MAX_DEPTH = 16  # of structs in a header


def page_sizes(file: BinaryIO, metadata: "FileMetaData") -> Iterator[int]:
    """Yield the size of every page after decompression, as its header declares it.

    Args:
        file: the parquet file.
        metadata: its footer, with the position of each column's pages.

    Raises:
        ValueError: a header is damaged, or a page ends outside its column.
    """
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            column = metadata.row_group(group).column(place)
            start, dictionary = column.data_page_offset, column.dictionary_page_offset
            if dictionary is not None and 0 < dictionary < start:
                start = dictionary
            end = start + column.total_compressed_size
            while start < end:
                unpacked, step = _read_header(file, start)
                yield unpacked
                start += step
            if start != end:
                raise ValueError("a page is longer than its column")


def _read_header(file: BinaryIO, offset: int) -> tuple[int, int]:
    """Return a page's size after decompression, and the bytes that it takes in the file with its header."""
    file.seek(offset)
    reader = _CompactReader(file.read(_HEADER_BYTES))
    sizes = {field: value for field, value in reader.struct() if field in (_UNPACKED, _PACKED)}
    unpacked, packed = sizes.get(_UNPACKED), sizes.get(_PACKED)
    if unpacked is None or packed is None or unpacked < 0 or packed < 0:
        raise ValueError("a page does not say how long it is")
    return unpacked, reader.place + packed


class _CompactReader:
    """Reads a struct of Thrift's compact protocol; only integer fields are kept."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.place = raw, 0

    def struct(self, depth: int = 0) -> Iterator[tuple[int, int | None]]:
        """Yield (field, value) to the end of a struct; the value is None if it is not a whole number."""
        if depth > _MAX_DEPTH:
            raise ValueError("a page's header is nested too deeply")
        field = 0
        while (head := self._byte()) != 0:
            delta, kind = head >> 4, head & 15
            field = field + delta if delta else self._zigzag()
            yield field, self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> int | None:
        if kind in (_I16, _I32, _I64):
            return self._zigzag()
        if kind in (_TRUE, _FALSE):  # the kind is the value
            return None
        if kind == _BYTE:
            self._skip(1)
        elif kind == _DOUBLE:
            self._skip(8)
        elif kind == _BINARY:
            self._skip(self._varint())
        elif kind == _STRUCT:
            for _ in self.struct(depth + 1):
                pass
        else:  # lists and maps are not in a PageHeader
            raise ValueError("a page's header is damaged")
        return None

    def _byte(self) -> int:
        if self.place >= len(self.raw):
            raise ValueError("a page's header is cut short")
        self.place += 1
        return self.raw[self.place - 1]

    def _skip(self, count: int) -> None:
        self.place += count
        if self.place > len(self.raw):
            raise ValueError("a page's header is cut short")

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a page's header is damaged")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
