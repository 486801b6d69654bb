"""Parsing of Flower's own messages between the SuperLink and sites; the gateway imports it, and no torch with it."""

from flwr.common.constant import ErrorCode
from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.proto.message_pb2 import PullObjectResponse

# Error codes of replies that Flower itself creates if a site is not connected; the site may reconnect.
NODE_AWAY = frozenset({ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE})


def has_no_message(body: bytes) -> bool:
    """Return whether a response to `pull-messages` has no message."""
    return not PullMessagesResponse.FromString(body).messages_list


def object_is_pending(body: bytes) -> bool:
    """Return whether a response to `pull-object` says that the object was announced but has not arrived yet.

    A site repeats the call a second after such a response.
    """
    response = PullObjectResponse.FromString(body)
    return response.object_found and not response.object_available
