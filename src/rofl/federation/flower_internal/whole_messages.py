"""Small messages travel whole, in one call; Flower sends each record and each array of a message by a call of its own.

A round has many small messages, and every call costs milliseconds of four processes. The header of a message has a
field for its content, which Flower itself leaves empty and the SuperLink passes on as it is. Large messages travel in
parts as always: the SuperLink stores a part once for all sites, and the gateway streams it.

The first request to a site travels in parts, too, and so do its replies until a whole message has arrived. An older
version on either side can read these parts, and refuses the other protocol with a sentence.
"""

from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import Message as Header
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    InflatableObject,
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)

from rofl.federation.flower_internal.fleet_messages import MOST_PARTS
from rofl.federation.protocol import ProtocolError, Refusal

_SMALL = 2**20  # bytes of arrays that travel in the header; the gateway accepts calls of 4 MB


def to_outgoing(message: Message, may_be_whole: bool) -> tuple[Header, ObjectTree, dict[str, InflatableObject]]:
    """Return what to send of a message: its header, the tree of its parts, and the parts by id; none if it is whole.

    Sets the message's id, which is a hash of its content.

    Args:
        message: The message.
        may_be_whole: Whether the receiver can read whole messages; small ones then travel whole.
    """
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        if may_be_whole and array_bytes(message) <= _SMALL:
            header = message_to_proto(message)
            if is_whole(header) and header.ByteSize() <= 2 * _SMALL:
                return header, ObjectTree(object_id=message.metadata.message_id), {}
        header = message_to_proto(remove_content_from_message(message) if message.has_content() else message)
        return header, get_object_tree(message), get_all_nested_objects(message)


def is_whole(header: Header) -> bool:
    """Return whether a header has the content of its message, or its error."""
    return header.HasField("error") or header.content.ByteSize() > 0


def part_ids(tree: ObjectTree) -> list[str]:
    """Return the ids of all parts of a message; raise a ValueError if there are none or too many."""
    parts = list(dict.fromkeys(each.object_id for each in iterate_object_tree(tree)))
    if not 0 < len(parts) <= MOST_PARTS:
        raise ValueError("it has too many parts")
    return parts


def array_bytes(message: Message) -> int:
    """Return the number of bytes of a message's arrays."""
    records = message.content.array_records.values() if message.has_content() else ()
    return sum(len(array.data) for record in records for array in record.values())


def error_reply(message: Message, error: Exception) -> Message:
    """Return the reply of a site that failed to handle a message.

    It contains only the exception's type, since its text may name files or samples. The text of a `ProtocolError` or a
    `Refusal` is sent.
    """
    hidden = f"{type(error).__name__}: see what the site itself says"
    reason = str(error) if isinstance(error, ProtocolError | Refusal) else hidden
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
