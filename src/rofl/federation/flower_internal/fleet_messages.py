"""Flower's own messages between the SuperLink and sites: what they say, and a site's error replies."""

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.proto.message_pb2 import PullObjectResponse

from rofl.federation.protocol import ProtocolError, Refusal

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


def error_reply(message: Message, error: Exception) -> Message:
    """Return the reply of a site that failed to handle a message.

    It contains only the exception's type, since its text may name files or samples. The text of a `ProtocolError` or a
    `Refusal` is sent.
    """
    hidden = f"{type(error).__name__}: see what the site itself says"
    reason = str(error) if isinstance(error, ProtocolError | Refusal) else hidden
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
