"""Encoding of masked sums and shares as Flower messages.

Every message of sums has integer tensors (`arrays`, `layout`) and numbers (`sums`). Masking converts it to one vector.
Unmasking converts the sum of such vectors back to a message of the same form.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from rofl.core.fixed_point import NUMBER_BITS
from rofl.federation.masking.peers import MaskSession, Peer
from rofl.federation.masking.seeds import MARK_BYTES, Vector
from rofl.federation.protocol import get_sums, is_int

_STEP = 1 << NUMBER_BITS
_EXACT = 1 << 53  # float64 represents every integer up to this
_SESSION, _MASKED, _VECTOR = "masks", "masked", "masked"
_DEALT = ("commitments", "shares", "marks")  # fields of a message, one entry per site of the session
_PEER = ("key", "signature", "certificate")  # fields of a session for each site, in addition to its number


@dataclass(frozen=True)
class SumsForm:
    """The layout of a vector of sums, which is public and the same at every site.

    Attributes:
        groups: The names of the groups of tensors, as JSON.
        tensors: Group, name, type and shape of each tensor, as JSON.
        numbers: The names of the numbers, which follow the tensors.
    """

    groups: str
    tensors: str
    numbers: tuple[str, ...]


@dataclass(frozen=True)
class MaskedSums:
    """A site's message: sums that look random, and encrypted shares of the seeds of their masks.

    Attributes:
        form: The layout of the vector.
        vector: The masked sums.
        commitments: A hash of each seed of the site's masks, in the order of the session's sites; the hash for the own
            mask is at the site's own place.
        shares: For each site of the session, a share of each of these seeds, encrypted for that site.
        marks: For each site of the session, `mark_share` of each of its shares, in the order of these seeds.
    """

    form: SumsForm
    vector: Vector
    commitments: tuple[bytes, ...]
    shares: tuple[bytes, ...]
    marks: tuple[bytes, ...]

    def encode(self) -> RecordDict:
        """Return the masked sums as a message."""
        content = RecordDict({"arrays": ArrayRecord({_VECTOR: Array(self.vector)})})
        content["layout"] = ConfigRecord({"groups": self.form.groups, "tensors": self.form.tensors})
        masked = ConfigRecord({"numbers": list(self.form.numbers)})
        for name in _DEALT:
            masked[name] = list(getattr(self, name))
        content[_MASKED] = masked
        return content

    @classmethod
    def decode(cls, content: RecordDict, sites: int) -> "MaskedSums":
        """Return the masked sums of a message, for a session of `sites` sites.

        Raises:
            ValueError: If the message is malformed.
        """
        arrays, layout, masked = content.get("arrays"), content.get("layout"), content.get(_MASKED)
        if not isinstance(arrays, ArrayRecord) or not isinstance(layout, ConfigRecord) or list(arrays) != [_VECTOR]:
            raise ValueError("it is not masked")
        if not isinstance(masked, ConfigRecord):
            raise ValueError("it has no shares of its masks")
        commitments, shares, marks = (_texts(masked, name) for name in _DEALT)
        if {len(commitments), len(shares), len(marks), *(len(each) / MARK_BYTES for each in marks)} != {sites}:
            raise ValueError(f"it has no shares for {sites} sites")
        try:
            vector = np.array(arrays[_VECTOR].numpy())
        except Exception as error:  # numpy raises errors of many types on untrusted bytes
            raise ValueError("its masked sums cannot be read") from error
        if vector.dtype != np.int64 or vector.ndim != 1:
            raise ValueError("its masked sums are not integers")
        numbers = tuple(str(name) for name in _list(masked, "numbers"))
        form = SumsForm(str(layout.get("groups")), str(layout.get("tensors")), numbers)
        return cls(form, vector, tuple(commitments), tuple(shares), tuple(marks))


def to_vector(content: RecordDict) -> tuple[SumsForm, Vector]:
    """Return the sums of a message as one vector of integers.

    Raises:
        ValueError: If a tensor does not hold integers, or a number is not a multiple of 2^-16. Only fixed-point
            numbers can be masked.
    """
    arrays, layout, numbers = content.get("arrays"), content.get("layout"), get_sums(content)
    form = SumsForm("[]", "[]", tuple(sorted(numbers)))
    parts = list[Vector]()
    if isinstance(arrays, ArrayRecord) and isinstance(layout, ConfigRecord):
        if set(arrays) - {"int64"}:
            raise ValueError("only integers can be masked: transport = fixed")
        parts += [array.numpy() for array in arrays.values()]
        form = SumsForm(str(layout["groups"]), str(layout["tensors"]), form.numbers)
    steps = [numbers[name] * _STEP for name in form.numbers]
    if any(not step.is_integer() or abs(step) > _EXACT for step in steps):
        raise ValueError("a number is not in fixed point, and cannot be masked")
    return form, np.concatenate([*parts, np.array(steps, dtype=np.int64)])


def from_vector(form: SumsForm, vector: Vector) -> RecordDict:
    """Return a sum of vectors as a message of sums.

    Raises:
        ValueError: If the vector is too short for its form, or has a number that is too large for any sum.
    """
    end = len(vector) - len(form.numbers)
    if end < 0:
        raise ValueError("the sum does not match the sites' layout")
    steps = [int(step) for step in vector[end:]]
    if any(abs(step) > _EXACT for step in steps):
        raise ValueError("the sum cannot be unmasked: a site sent something else than it said")
    content = RecordDict(
        {"sums": MetricRecord({name: step / _STEP for name, step in zip(form.numbers, steps, strict=True)})}
    )
    if form.groups != "[]":
        content["arrays"] = ArrayRecord({"int64": Array(vector[:end])} if end else {})
        content["layout"] = ConfigRecord({"groups": form.groups, "tensors": form.tensors})
    return content


def put_session(content: RecordDict, session: MaskSession) -> RecordDict:
    """Return a request for a masked sum with its session; shares the arrays of `content`."""
    record = ConfigRecord({"session": session.name, "clients": session.clients})
    for name in _PEER:
        record[name] = [getattr(peer, name) for peer in session.peers]
    return RecordDict({**content, _SESSION: record})


def get_session(content: RecordDict) -> MaskSession | None:
    """Return the session of a request; None if it asks for sums without masks.

    Raises:
        ValueError: If the session is malformed.
    """
    record = content.get(_SESSION)
    if record is None:
        return None
    name = record.get("session") if isinstance(record, ConfigRecord) else None
    if not isinstance(record, ConfigRecord) or not isinstance(name, bytes):
        raise ValueError("its session cannot be read")
    clients, columns = _numbers(record, "clients"), [_texts(record, name) for name in _PEER]
    if any(len(column) != len(clients) for column in columns):
        raise ValueError("its session cannot be read")
    return MaskSession(name, tuple(Peer(*facts) for facts in zip(clients, *columns, strict=True)))


def put_shares(shares: Mapping[int, bytes], session: bytes, clients: Sequence[int] = ()) -> RecordDict:
    """Return shares as a message: encrypted shares to a site, or decrypted shares from it.

    Args:
        shares: The shares, by the site whose masks they belong to.
        session: The name of the session.
        clients: In a request, the sites whose sums arrived.
    """
    record = ConfigRecord({"session": session, "clients": list(clients), "of": list(shares)})
    record["shares"] = list(shares.values())
    return RecordDict({"unmask": record})


def get_shares(content: RecordDict) -> tuple[dict[int, bytes], bytes, list[int]]:
    """Return the arguments of `put_shares` from a message; raise a ValueError if it is malformed."""
    record = content.get("unmask")
    if not isinstance(record, ConfigRecord):
        raise ValueError("it has no shares")
    session, of, shares = record.get("session"), _numbers(record, "of"), _texts(record, "shares")
    if not isinstance(session, bytes) or len(of) != len(shares):
        raise ValueError("its shares cannot be read")
    return dict(zip(of, shares, strict=True)), session, _numbers(record, "clients")


def _numbers(record: ConfigRecord, name: str) -> list[int]:
    return [value for value in _list(record, name) if is_int(value)]


def _texts(record: ConfigRecord, name: str) -> list[bytes]:
    return [value for value in _list(record, name) if isinstance(value, bytes)]


def _list(record: ConfigRecord, name: str) -> list[object]:
    value = record.get(name)
    if not isinstance(value, list):
        raise ValueError(f"it has no list of {name}")
    return list(value)
