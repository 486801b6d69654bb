"""The sizes that the pages of a parquet file declare, read without unpacking anything.

A page of a few bytes can unpack to two gigabytes, and the sizes in the file's footer cannot be trusted. So the
header of every page is read first. Footer and headers are structs of Thrift's compact protocol (parquet-format,
FileMetaData and PageHeader). The footer is read here, too: pyarrow 26 ends the whole process where it is asked for the
columns of a footer whose statistics do not fit its schema.
"""

import os
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias

_TAIL = 8  # bytes at the end of a file: the footer's length, and a magic number
_MAX_FOOTER = 2**26  # bytes
_HEADER_BYTES = 2**16  # of a page; statistics in it hold the smallest and the largest value
_UNPACKED, _PACKED = 2, 3  # fields of a PageHeader: the page's size after and before decompression
_GROUPS, _COLUMNS, _FACTS = 4, 1, 3  # of FileMetaData, of a RowGroup, and of a ColumnChunk
_SIZE, _DATA, _DICTIONARY = 7, 9, 11  # of ColumnMetaData: bytes of all pages, and where they begin
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_MAX_DEPTH = 16  # of structs and lists

Value: TypeAlias = "int | list[Value] | dict[int, Value] | None"  # None for what is neither number, list nor struct


def page_sizes(file: BinaryIO) -> Iterator[int]:
    """Yield the size of every page of a parquet file after decompression, as its header declares it.

    Raises:
        ValueError: the footer or a header is damaged, or a page ends outside its column.
    """
    for start, end in _read_columns(file):
        while start < end:
            unpacked, step = _read_header(file, start)
            yield unpacked
            start += step
        if start != end:
            raise ValueError("a page is longer than its column")


def _read_columns(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yield where the pages of each column of each row group begin and end, as the footer says."""
    end = file.seek(0, os.SEEK_END) - _TAIL
    file.seek(max(end, 0))
    length = int.from_bytes(file.read(4), "little")
    if not 0 < length <= min(end, _MAX_FOOTER):
        raise ValueError("it has no footer")
    file.seek(end - length)
    for group in _list(_CompactReader(file.read(length)).struct().get(_GROUPS)):
        for column in _list(_struct(group).get(_COLUMNS)):
            facts = _struct(_struct(column).get(_FACTS))
            start, dictionary, size = (facts.get(field) for field in (_DATA, _DICTIONARY, _SIZE))
            if not isinstance(start, int) or not isinstance(size, int):
                raise ValueError("a column does not say where it is")
            if isinstance(dictionary, int) and 0 < dictionary < start:
                start = dictionary
            yield start, start + size


def _read_header(file: BinaryIO, offset: int) -> tuple[int, int]:
    """Return a page's size after decompression, and the bytes that it takes in the file with its header."""
    if offset < 0:
        raise ValueError("a page leads out of the file")
    file.seek(offset)
    reader = _CompactReader(file.read(_HEADER_BYTES))
    header = reader.struct()
    unpacked, packed = header.get(_UNPACKED), header.get(_PACKED)
    if not isinstance(unpacked, int) or not isinstance(packed, int) or unpacked < 0 or packed < 0:
        raise ValueError("a page does not say how long it is")
    return unpacked, reader.place + packed


def _list(value: Value) -> "list[Value]":
    if not isinstance(value, list):
        raise ValueError("a list is missing")
    return value


def _struct(value: Value) -> "dict[int, Value]":
    if not isinstance(value, dict):
        raise ValueError("a struct is missing")
    return value


class _CompactReader:
    """Reads a struct of Thrift's compact protocol; of its values, whole numbers, lists and structs are kept."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.place = raw, 0

    def struct(self, depth: int = 0) -> "dict[int, Value]":
        """Return the values of a struct by the numbers of their fields."""
        if depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        field, values = 0, dict[int, Value]()
        while (head := self._byte()) != 0:
            delta, kind = head >> 4, head & 15
            field = field + delta if delta else self._zigzag()
            values[field] = None if kind in (_TRUE, _FALSE) else self._value(kind, depth)  # the kind is the value
        return values

    def _value(self, kind: int, depth: int) -> Value:
        if kind in (_I16, _I32, _I64):
            return self._zigzag()
        if kind in (_TRUE, _FALSE, _BYTE):
            self._skip(1)
        elif kind == _DOUBLE:
            self._skip(8)
        elif kind == _BINARY:
            self._skip(self._varint())
        elif kind == _STRUCT:
            return self.struct(depth + 1)
        elif kind in (_LIST, _SET):
            return self._sequence(depth + 1)
        else:  # maps are neither in a footer nor in a PageHeader
            raise ValueError("a footer or a header is damaged")
        return None

    def _sequence(self, depth: int) -> "list[Value]":
        if depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        head = self._byte()
        count = head >> 4 if head >> 4 != 15 else self._varint()
        if count > len(self.raw) - self.place:  # each takes a byte or more
            raise ValueError("a list is cut short")
        return [self._value(head & 15, depth) for _ in range(count)]

    def _byte(self) -> int:
        if self.place >= len(self.raw):
            raise ValueError("a footer or a header is cut short")
        self.place += 1
        return self.raw[self.place - 1]

    def _skip(self, count: int) -> None:
        self.place += count
        if self.place > len(self.raw):
            raise ValueError("a footer or a header is cut short")

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a footer or a header is damaged")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
