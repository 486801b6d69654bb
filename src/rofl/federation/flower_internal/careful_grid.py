"""A Grid that turns a malformed reply into an error reply of that site.

Flower's own Grid raises an exception for a malformed reply, loses the replies that were pulled with it, and waits for
hours for a reply that was announced and does not arrive. Small messages travel whole, by `whole_messages`.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import httpx
from flwr.app import Message, Metadata
from flwr.app.error import Error
from flwr.app.message import make_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.message_pb2 import Message as Header
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse, PushAppMessagesRequest
from flwr.supercore.constant import SYSTEM_MESSAGE_TYPE
from flwr.supercore.date import now
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.superlink.grid import HttpGrid

from rofl.federation.flower_internal.fleet_messages import MOST_PARTS, RUN_IS_OVER, count_records
from rofl.federation.flower_internal.whole_messages import array_bytes, is_whole, part_ids, to_outgoing
from rofl.federation.protocol import FIRST_REQUEST

_MAX_BYTES = 2**30  # of one reply, whatever the request
_BYTES_BESIDES, _TIMES_ASKED = 2**27, 8  # of one reply: tables by class; updates with 8 bytes for 2 bytes of a request
_AT_ONCE = 32  # messages in one call, of up to 4 MB each
_POLL = 0.1  # seconds between two polls for replies, if nothing tells that one has arrived
_PATIENCE = 60.0  # seconds in which more of a reply must arrive
_UNREADABLE = "its message cannot be read"


@dataclass
class _Incoming:
    """A reply that was announced.

    Attributes:
        message_id: The reply's own id.
        missing: The ids of the parts that have not arrived.
        parts: The parts that have arrived, by id.
        progress: The time at which the last part arrived.
    """

    message_id: str
    missing: list[str]
    parts: dict[str, bytes] = field(default_factory=dict)
    progress: float = field(default_factory=time.monotonic)


class _Lost(Exception):
    """The parts of a reply do not arrive, because its sender was killed; it may be asked again."""


class CarefulGrid(HttpGrid):
    """Flower's connection to the sites, for untrusted replies.

    Args:
        address: The SuperLink's host and port.
        ca: The certificate of the authority that signed the SuperLink's; None for plain HTTP.
        token: The token of the run.

    Attributes:
        on_push: Called after messages were sent.
        wait: Waits up to so many seconds; returns earlier if a reply may have arrived.
    """

    def __init__(self, address: str, ca: bytes | None, token: str) -> None:
        super().__init__(address, insecure=ca is None, root_certificates=ca, token=token)
        self._incoming: dict[str, _Incoming] = {}  # by the id of the message that they answer
        self._largest = 0  # bytes of the arrays of the largest request
        self.on_push: Callable[[], None] = lambda: None
        self.wait: Callable[[float], None] = lambda seconds: time.sleep(min(seconds, _POLL))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages and return their ids; the size of the largest limits the size of replies."""
        sent = list(messages)
        self._largest = max([self._largest, *map(array_bytes, sent)])
        outgoing = [to_outgoing(message, message.metadata.message_type != FIRST_REQUEST) for message in sent]
        if any(parts for _, _, parts in outgoing):
            found = list(super().push_messages(sent))
        else:
            found = []
            for start in range(0, len(outgoing), _AT_ONCE):
                some = outgoing[start : start + _AT_ONCE]
                headers, trees = [header for header, _, _ in some], [tree for _, tree, _ in some]
                request = PushAppMessagesRequest(messages_list=headers, message_object_trees=trees)
                found += self._runtime_client.PushMessages(request).message_ids
        self.on_push()
        return found

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that have arrived; the SuperLink, not the reply, determines which message each answers.

        Raises:
            httpx.HTTPError: If the SuperLink does not answer.
        """
        asked = list(message_ids)
        forgotten = time.monotonic() - 10 * _PATIENCE  # the request has expired
        self._incoming = {each: found for each, found in self._incoming.items() if found.progress > forgotten}
        new, complete = [each for each in asked if each not in self._incoming], list[Message]()
        for start in range(0, len(new), _AT_ONCE):
            complete += self._ask(new[start : start + _AT_ONCE])
        there = [each for each in asked if each in self._incoming]
        return complete + [reply for each in there if (reply := self._receive(each)) is not None]

    def _ask(self, asked: list[str]) -> list[Message]:
        """Ask the SuperLink for new replies; return complete ones, and error replies for unreadable ones.

        The SuperLink announces a reply once and then forgets the message that it answers.
        """
        if not asked:
            return []
        try:
            return self._announce(self._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=asked)), asked)
        except httpx.HTTPStatusError as error:  # it answers, and fails on one of them
            if error.response.status_code in RUN_IS_OVER:
                raise
            if len(asked) > 1:
                return [error for each in asked for error in self._ask([each])]
            return [self._error(asked[0], ErrorCode.CLIENT_APP_RAISED_EXCEPTION)]

    def _announce(self, response: PullAppMessagesResponse, asked: list[str]) -> list[Message]:
        """Record the announced replies; return those that are complete, and error replies for unreadable ones."""
        complete = []
        for header, tree in zip(response.messages_list, response.message_object_trees, strict=False):
            answered = header.metadata.reply_to_message_id
            if answered not in asked:
                continue
            try:
                if is_whole(header):
                    complete.append(self._read_whole(header, answered))
                else:
                    self._incoming[answered] = _Incoming(header.metadata.message_id, part_ids(tree))
            except httpx.HTTPError:
                raise
            except Exception:  # Flower raises errors of many types on untrusted bytes
                self._confirm(header.metadata.message_id)
                complete.append(self._error(answered, ErrorCode.CLIENT_APP_RAISED_EXCEPTION))
        return complete

    def _receive(self, asked: str) -> Message | None:
        """Return a reply, or an error reply in its place; None while parts are missing."""
        incoming = self._incoming[asked]
        try:
            self._pull(incoming)
            if incoming.missing:
                return None
            reply = self._read(incoming)
            reply.metadata.__dict__["_reply_to_message_id"] = asked  # overrides the reply's own claim
        except httpx.HTTPError:
            raise
        except _Lost:
            self._confirm(incoming.message_id)  # or the SuperLink keeps what has arrived
            reply = self._error(asked, ErrorCode.MESSAGE_UNAVAILABLE)
        except Exception:  # Flower raises errors of many types on untrusted bytes
            self._confirm(incoming.message_id)
            reply = self._error(asked, ErrorCode.CLIENT_APP_RAISED_EXCEPTION)
        del self._incoming[asked]
        return reply

    def _pull(self, incoming: _Incoming) -> None:
        """Pull the parts of a reply that are available.

        Raises:
            _Lost: If a part is not found, or no further part arrives in time.
            ValueError: If the reply is too large.
        """
        for part in list(incoming.missing):
            request = PullObjectRequest(node=self.node, run_id=self.run.run_id, object_id=part)
            response = self._runtime_client.PullObject(request)
            if not response.object_found:
                raise _Lost
            if not response.object_available:
                break
            incoming.parts[part] = response.object_content
            incoming.missing.remove(part)
            incoming.progress = time.monotonic()
            if sum(map(len, incoming.parts.values())) > min(_MAX_BYTES, _BYTES_BESIDES + _TIMES_ASKED * self._largest):
                raise ValueError("it is too large")
        if incoming.missing and time.monotonic() - incoming.progress > _PATIENCE:
            raise _Lost

    def _read_whole(self, header: Header, asked: str) -> Message:
        """Return a reply that travelled whole."""
        if count_records(header) > MOST_PARTS:
            raise ValueError("it has too many parts")
        message = message_from_proto(header)
        if message.has_content() == message.has_error():
            raise ValueError("it is no message")
        message.metadata.__dict__["_reply_to_message_id"] = asked
        self._confirm(header.metadata.message_id)
        return message

    def _confirm(self, message_id: str) -> None:
        """Let the SuperLink delete a reply."""
        self._runtime_client.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(node=self.node, run_id=self.run.run_id, message_object_id=message_id)
        )

    def _read(self, incoming: _Incoming) -> Message:
        self._confirm(incoming.message_id)
        message: object = inflate_object_from_contents(incoming.message_id, incoming.parts)
        if not isinstance(message, Message) or message.has_content() == message.has_error():
            raise ValueError("it is no message")
        message.metadata.__dict__["_message_id"] = incoming.message_id
        return message

    def _error(self, asked: str, code: int) -> Message:
        """Return an error reply to a message, in the form of Flower's own error replies."""
        metadata = Metadata(
            run_id=self.run.run_id,
            message_id="",
            src_node_id=self.node.node_id,
            dst_node_id=self.node.node_id,
            message_type=SYSTEM_MESSAGE_TYPE,
            group_id="",
            ttl=0,
            reply_to_message_id=asked,
            created_at=now().timestamp(),
        )
        return make_message(metadata=metadata, error=Error(code=code, reason=_UNREADABLE))
