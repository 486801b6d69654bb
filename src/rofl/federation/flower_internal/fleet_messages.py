"""Flower's own messages between SuperLink and SuperNode, for the gateway and the messaging."""

from flwr.common.constant import ErrorCode
from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.proto.message_pb2 import PullObjectResponse

# Error codes of a reply that Flower itself makes up where the site is not connected; the site may come back.
NODE_AWAY = frozenset({ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE})


def has_no_message(body: bytes) -> bool:
    """Return whether a response to `pull-messages` brings no message."""
    return not PullMessagesResponse.FromString(body).messages_list


def object_is_pending(body: bytes) -> bool:
    """Return whether a response to `pull-object` says that the object was announced and has not arrived yet.

    A SuperNode that gets such a response asks again after a second.
    """
    response = PullObjectResponse.FromString(body)
    return response.object_found and not response.object_available
