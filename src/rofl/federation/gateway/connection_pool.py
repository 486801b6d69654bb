"""The open connections of a gateway, with limits on their number and on what a site sends.

A connection is a stranger until it has presented an admitted key. A site presents its key with its first request, right
after connecting, so a small number of strangers is enough. When the limit is reached, the oldest stranger is closed. A
site that has just connected is never the oldest, so that clients that reconnect endlessly cannot keep sites out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

MAX_STRANGERS = 128  # strangers in total
MAX_PER_ADDRESS = 32  # strangers from one address
MAX_PER_KEY = 32  # connections of one site
_BESIDES, _TIMES = 2**27, 8  # bytes that a site may send for a message, and times those that it got; see careful_grid


@dataclass(eq=False)
class OpenConnection:
    """An open connection.

    Attributes:
        address: The address of the other side, without its port.
        key: The key that the other side presented; empty for a stranger.
        abort: Closes the connection at once.
    """

    address: str
    abort: Callable[[], None] = field(default=lambda: None, repr=False)
    key: bytes = b""


class ConnectionPool:
    """All open connections.

    Args:
        strangers: The largest number of strangers.
        per_address: The largest number of strangers from one address.
        per_key: The largest number of connections of one site.
    """

    def __init__(
        self, strangers: int = MAX_STRANGERS, per_address: int = MAX_PER_ADDRESS, per_key: int = MAX_PER_KEY
    ) -> None:
        self._limits = strangers, per_address, per_key
        self._groups: dict[tuple[str, bytes], dict[OpenConnection, None]] = {}  # see `_group`; oldest first
        self.turned_away = 0  # strangers that were closed to make room

    def __iter__(self) -> Iterator[OpenConnection]:
        return iter([connection for group in self._groups.values() for connection in group])

    @property
    def strangers(self) -> int:
        """The number of connections that have not presented a key."""
        return sum(len(group) for (_, key), group in self._groups.items() if not key)

    def add(self, connection: OpenConnection) -> None:
        """Add a new connection as a stranger, and close another one if a limit is reached."""
        most, per_address, _ = self._limits
        own = self._groups.get(_group(connection), {})
        if len(own) >= per_address:
            self._close_oldest(own)
        elif self.strangers >= most:
            self._close_oldest(max((group for (_, key), group in self._groups.items() if not key), key=len))
        self._groups.setdefault(_group(connection), {})[connection] = None

    def promote(self, connection: OpenConnection, key: bytes) -> None:
        """Assign a connection that has presented an admitted key to its site."""
        if connection.key == key:
            return
        self.remove(connection)
        connection.key = key
        own = self._groups.get(_group(connection), {})
        if len(own) >= self._limits[2]:
            self._close_oldest(own)
        self._groups.setdefault(_group(connection), {})[connection] = None

    def remove(self, connection: OpenConnection) -> None:
        """Remove a connection that has ended."""
        name = _group(connection)
        group = self._groups.get(name, {})
        group.pop(connection, None)
        if not group:
            self._groups.pop(name, None)

    def close_key(self, key: bytes) -> None:
        """Close all connections of a site whose key is no longer admitted."""
        for connection in list(self._groups.get(("", key), {})):
            self.remove(connection)
            connection.abort()

    def _close_oldest(self, group: dict[OpenConnection, None]) -> None:
        oldest = next(iter(group))
        self.turned_away += not oldest.key
        self.remove(oldest)
        oldest.abort()


class TooLargeError(Exception):
    """The body of a request is too large."""


@dataclass
class SiteTraffic:
    """The bytes that a site has got and sent since its newest message of the coordinator."""

    received: int = 0
    sent: int = 0

    def send(self, size: int) -> None:
        """Count bytes that the site sends; raise a TooLargeError if no answer to its message is that large."""
        self.sent += size
        if self.sent > _BESIDES + _TIMES * self.received:
            raise TooLargeError


def _group(connection: OpenConnection) -> tuple[str, bytes]:
    """Return the group that a connection counts in: a stranger's address, or a site's key."""
    return ("", connection.key) if connection.key else (connection.address, b"")
