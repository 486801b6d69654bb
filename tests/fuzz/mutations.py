"""Damage to files, from a seed: bits, cuts, copies, and tokens that parsers stumble over."""

import io
import json
import random
import re
import zipfile
from collections.abc import Callable

Mutation = Callable[[bytes, random.Random], bytes]

TOKENS = (
    *(b"\0", b"\xff", b"\xff\xfe", b"\xed\xa0\x80", b"\n", b"\r", b",", b'"', b"'", b"=", b"[", b"]", b"{", b"}"),
    *(b"-1", b"0", b"1e999", b"-1e999", b"NaN", b"nan", b"inf", b"Infinity", b"null", b"true", b'""', b"[]", b"{}"),
    *(
        b"9" * 20,
        b"9" * 5000,
        b"4294967296",
        b"18446744073709551616",
        b"0.1",
        b"../../x",
        b"/dev/zero",
        b"=cmd|' /C'!A0",
    ),
    *(b"[" * 3000, b'{"a":' * 3000, b"a." * 2000, b"-" * 3000 + b"1", b"\xe2\x80\xae", b"\x1b[2J", b"=1+1"),
    b"a" * 200_000,
)
NUMBERS = (b"-1", b"0", b"1", b"2", b"1e400", b"-0.0", b"0.5", b"9" * 30, b'"x"', b"null", b"true", b"[1]", b"{}")

_TOKEN, _WINDOW = re.compile(rb'-?\d+(\.\d+)?|"[^"\n]*"'), 1000  # bytes in which a token is looked for


def mutate(raw: bytes, chance: random.Random) -> bytes:
    """Damage some bytes in one to four ways."""
    for _ in range(chance.randint(1, 4)):
        raw = chance.choice((_flip, _set, _cut, _delete, _copy, _insert, _replace_number, _swap))(raw, chance)
    return raw


def mutate_safetensors(raw: bytes, chance: random.Random) -> bytes:
    """Damage the whole, the header, or the metadata in the header, with a length that fits."""
    where = chance.random()
    if where < 0.3:
        return mutate(raw, chance)
    length = int.from_bytes(raw[:8], "little")
    header, rest = raw[8 : 8 + length], raw[8 + length :]
    if where < 0.6:
        header = mutate(header, chance)
    else:
        content = json.loads(header)
        facts = mutate(content["__metadata__"]["facts"].encode(), chance)
        content["__metadata__"]["facts"] = facts.decode("utf-8", "replace")
        header = json.dumps(content).encode()
    return len(header).to_bytes(8, "little") + header + rest


def mutate_zip(raw: bytes, chance: random.Random) -> bytes:
    """Damage the archive, or a member inside a sound archive."""
    if chance.random() < 0.4:
        return mutate(raw, chance)
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(packed, "w") as new:
        names = old.namelist()
        target = chance.choice(names)
        for name in names:
            content = old.read(name)
            if name == target:  # the header of an array is in its first 128 bytes
                content = (
                    mutate(content[:128], chance) + content[128:] if chance.random() < 0.7 else mutate(content, chance)
                )
            new.writestr(name, content, chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)))
    return packed.getvalue()


def _place(raw: bytes, chance: random.Random) -> int:
    return chance.randrange(len(raw) + 1)


def _flip(raw: bytes, chance: random.Random) -> bytes:
    if not raw:
        return raw
    place = chance.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ 1 << chance.randrange(8)]) + raw[place + 1 :]


def _set(raw: bytes, chance: random.Random) -> bytes:
    if not raw:
        return raw
    place = chance.randrange(len(raw))
    return raw[:place] + bytes([chance.randrange(256)]) + raw[place + 1 :]


def _cut(raw: bytes, chance: random.Random) -> bytes:
    return raw[: _place(raw, chance)] if chance.random() < 0.3 else raw


def _range(raw: bytes, chance: random.Random) -> tuple[int, int]:
    start = _place(raw, chance)
    return start, min(len(raw), start + chance.choice((1, 2, 8, 40, 300)))


def _delete(raw: bytes, chance: random.Random) -> bytes:
    start, end = _range(raw, chance)
    return raw[:start] + raw[end:]


def _copy(raw: bytes, chance: random.Random) -> bytes:
    start, end = _range(raw, chance)
    place = _place(raw, chance)
    return raw[:place] + raw[start:end] * chance.choice((1, 1, 3, 50)) + raw[place:]


def _insert(raw: bytes, chance: random.Random) -> bytes:
    place = _place(raw, chance)
    return raw[:place] + chance.choice(TOKENS) + raw[place:]


def _replace_number(raw: bytes, chance: random.Random) -> bytes:
    """Exchange a whole number or text of a text file, so that it stays well formed."""
    start = chance.randrange(max(1, len(raw) - _WINDOW))
    found = list(_TOKEN.finditer(raw, start, start + _WINDOW))
    if not found:
        return _insert(raw, chance)
    token = chance.choice(found)
    return raw[: token.start()] + chance.choice(NUMBERS) + raw[token.end() :]


def _swap(raw: bytes, chance: random.Random) -> bytes:
    first, second = sorted((_place(raw, chance), _place(raw, chance)))
    middle = (first + second) // 2
    return raw[:first] + raw[middle:second] + raw[first:middle] + raw[second:]
