"""The protocol between coordinator and sites: its version, requests to sites, and updates from sites.

Every request and every greeting carry `PROTOCOL`. Both sides compare it with their own version and refuse another one,
with a message that says which side to update. The other messages of a site are in `site_info`, `site_evaluation` and
`site_report`. `tensor_records` encodes tensors as Flower records.

With `transport = "half"` in the settings, updates travel as bfloat16, and so do server states, but for the final one.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from flwr.app import ConfigRecord, MetricRecord, RecordDict

from rofl.errors import UserError
from rofl.federation.tensor_records import get_tensors, put_tensors
from rofl.methods.base import ServerState, Update

PROTOCOL = 10  # increment when another version would misunderstand a message
_FIRST_PROTOCOL = 1  # the version of rofl 0.1, whose messages carry none

FIRST_REQUEST = "query.describe"  # the type of the first message to a site, which compares the versions

_MAX_SUMS, _MAX_NAME = 100, 100  # numbers of a message, and characters of a name
# The names of 0.1, so that a site of that version can still answer the first request and be told to update.
_REQUEST, _STATE_ROUND = "order", "kept"


class ProtocolError(UserError):
    """Coordinator and site use different protocols. The text may be sent, since it contains versions only."""


class Refusal(UserError):
    """A site refuses a request. The text may be sent, since it contains settings and conditions only."""


@dataclass(frozen=True)
class RoundRequest:
    """A request of the coordinator to a site, without the server state.

    Attributes:
        settings: The experiment as TOML; "" while sites with their own data are asked to describe it.
        index: The round, counted from 1; 0 outside of rounds.
        state_round: The round whose client state to start from; 0 for none.
        history: The records of all rounds as a JSON list, in the last request only.
        cautious: Whether to train with the cautious form of the method.
    """

    settings: str
    index: int = 0
    state_round: int = 0
    history: str = ""
    cautious: bool = False

    @property
    def bf16(self) -> bool:
        """Whether the settings ask for bfloat16 instead of float32."""
        return tomllib.loads(self.settings).get("transport") == "half"


def check_protocol(theirs: object, name: str, our_name: str) -> None:
    """Refuse a message of another protocol version.

    Args:
        theirs: The version that the message carries; None for a message of rofl 0.1, which carries none.
        name: The sender, such as "the coordinator" or a site's name.
        our_name: The receiver, such as "the site".

    Raises:
        ProtocolError: If the version is not `PROTOCOL`, or not an integer.

    >>> check_protocol(1, "north", "the coordinator")
    Traceback (most recent call last):
    ...
    rofl.federation.protocol.ProtocolError: north uses protocol 1 and the coordinator protocol 10: update rofl at north.
    """
    version = _FIRST_PROTOCOL if theirs is None else theirs
    if not is_int(version):
        raise ProtocolError(f"{_capitalized(name)} sent a protocol version that is not a number.")
    if version != PROTOCOL:
        older = name if version < PROTOCOL else our_name
        versions = f"{_capitalized(name)} uses protocol {version} and {our_name} protocol {PROTOCOL}"
        raise ProtocolError(f"{versions}: update rofl at {older}.")


def encode_request(request: RoundRequest, server_state: ServerState | None = None, exact: bool = False) -> RecordDict:
    """Return a request as a message to a site.

    Args:
        request: The request.
        server_state: The model and the other tensors that the method sends; None if the site needs none.
        exact: Whether to send float32 regardless of the settings, as for the final model.
    """
    record = ConfigRecord({"protocol": PROTOCOL, "settings": request.settings, "round": request.index})
    record[_STATE_ROUND] = request.state_round
    if request.history:
        record["history"] = request.history
    if request.cautious:
        record["cautious"] = True
    content = RecordDict({_REQUEST: record})
    if server_state is None:
        return content
    return put_tensors(content, request.bf16 and not exact, model=server_state.model, aux=server_state.aux)


def decode_request(content: RecordDict, exact: bool = False) -> tuple[RoundRequest, ServerState | None]:
    """Return the request and the server state of a message that `encode_request` made.

    Args:
        content: The message.
        exact: Whether the server state must be float32, as in requests after the last round.

    Raises:
        ProtocolError: If the coordinator uses another version of the protocol.
        ValueError: If the message is not a valid request.
    """
    record = content.get(_REQUEST)
    if not isinstance(record, ConfigRecord):
        raise ValueError("there is no request in it")
    check_protocol(record.get("protocol"), "the coordinator", "the site")
    settings, history = record.get("settings"), record.get("history", "")
    index, state_round = record.get("round"), record.get(_STATE_ROUND)
    cautious = record.get("cautious", False)
    if not isinstance(settings, str) or not isinstance(history, str) or not isinstance(cautious, bool):
        raise ValueError("its request lacks a field, or has one of a wrong type")
    if not is_int(index) or not is_int(state_round):
        raise ValueError("its request lacks a field, or has one of a wrong type")
    request = RoundRequest(settings, index, state_round, history, cautious)
    if "arrays" not in content:
        return request, None
    return request, ServerState(*get_tensors(content, "model", "aux", bf16=request.bf16 and not exact))


def request_round(content: RecordDict) -> int:
    """Return the round of a request that `encode_request` made; 0 for other requests."""
    record = content.get(_REQUEST)
    index = record.get("round") if isinstance(record, ConfigRecord) else 0
    return index if is_int(index) else 0


def readdress(content: RecordDict, request: RoundRequest) -> RecordDict:
    """Return a message with another request and the same arrays, which are not copied."""
    return RecordDict({**content, _REQUEST: encode_request(request)[_REQUEST]})


def encode_update(update: Update, bf16: bool = False) -> RecordDict:
    """Return a client's update as a message, which holds only sums over samples."""
    content = put_tensors(RecordDict(), bf16, model=update.model, aux=update.aux)
    return put_sums(content, {"weight": float(update.weight), **update.metrics})


def decode_update(content: RecordDict, bf16: bool = False) -> Update:
    """Return the update of a message that `encode_update` made.

    Does not check shapes and values; `rofl.simulation.rounds.check_update` compares them with what the method expects.

    Raises:
        ValueError: If the message holds no valid update.
    """
    sums = get_sums(content)
    if "weight" not in sums:
        raise ValueError("it has no weight")
    weight = sums.pop("weight")
    model, aux = get_tensors(content, "model", "aux", bf16=bf16)
    return Update(model, weight, aux, sums)


def put_sums(content: RecordDict, sums: Mapping[str, float]) -> RecordDict:
    """Add named numbers to a message, as its record `sums`, and return the message."""
    content["sums"] = MetricRecord({name: float(value) for name, value in sums.items()})
    return content


def get_sums(content: RecordDict) -> dict[str, float]:
    """Return the numbers that `put_sums` wrote.

    Raises:
        ValueError: If there are none, too many, or any with an invalid name or type.
    """
    record = content.get("sums")
    if not isinstance(record, MetricRecord):
        raise ValueError("it has no record 'sums'")
    if any(isinstance(value, list) for value in record.values()):
        raise ValueError("its sums are not numbers")
    if len(record) > _MAX_SUMS or not all(0 < len(name) <= _MAX_NAME and name.isprintable() for name in record):
        raise ValueError("its sums have names that cannot be used")
    return {name: float(value) for name, value in record.items() if not isinstance(value, list)}


def is_int(value: object) -> TypeGuard[int]:
    """Return whether a value from a message is an integer and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _capitalized(name: str) -> str:
    return name.replace("the ", "The ", 1) if name.startswith("the ") else name
