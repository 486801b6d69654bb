"""Parsing of Flower's own messages between the SuperLink and sites; the gateway imports it, and no torch with it."""

from flwr.app import Message
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import Message as Header
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

_AWAY = frozenset({ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE})

RUN_IS_OVER = (401, 403)  # the SuperLink's statuses for calls of a run that it has ended

MOST_PARTS = 10_000  # of one message; valid ones have a dozen, and one more for every 5 MB


def node_is_away(reply: Message) -> bool:
    """Return whether a reply is an error of the SuperLink: the site is not connected, and may reconnect.

    A site could send the same codes; the SuperLink lets no site claim to be the SuperLink.
    """
    return reply.has_error() and reply.error.code in _AWAY and reply.metadata.src_node_id == SUPERLINK_NODE_ID


def has_no_message(body: bytes) -> bool:
    """Return whether a response to `pull-messages` has no message."""
    return not PullMessagesResponse.FromString(body).messages_list


def object_is_pending(body: bytes) -> bool:
    """Return whether a response to `pull-object` says that the object was announced but has not arrived yet.

    A site repeats the call a second after such a response.
    """
    response = PullObjectResponse.FromString(body)
    return response.object_found and not response.object_available


def is_divided_too_much(body: bytes) -> bool:
    """Return whether a request to `push-messages` has more parts than a valid one.

    Flower takes seconds of processor time for the records of 4 MB. What cannot be read, the SuperLink refuses at once.
    """
    try:
        request = PushMessagesRequest.FromString(body)
    except DecodeError:
        return False
    parts = sum(map(count_records, request.messages_list)) + sum(map(_count_objects, request.message_object_trees))
    return parts > MOST_PARTS


def count_records(header: Header) -> int:
    """Return the number of records in a message's header, and of their entries."""
    records = header.content.items
    if len(records) > MOST_PARTS:
        return len(records)
    kinds = ("array_record", "metric_record", "config_record")
    return len(records) + sum(len(getattr(each, kind).items) for each in records for kind in kinds)


def _count_objects(tree: ObjectTree) -> int:
    return 1 + sum(map(_count_objects, tree.children))
