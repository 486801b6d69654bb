"""The open connections of a gateway, and the choice of those to close when there are too many.

Whoever has not shown an admitted key yet is a stranger. Strangers are few: a site shows its key with its first request,
a moment after it has connected. When there is no room for a new one, the oldest stranger goes: a site that has just
connected is never the oldest, so that even those who reconnect without end keep no site out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

MAX_STRANGERS = 128  # in all
MAX_PER_ADDRESS = 32  # strangers of one address
MAX_PER_KEY = 32  # connections of one site


@dataclass(eq=False)
class OpenConnection:
    """A connection, from its acceptance to its end.

    Attributes:
        address: Of the other side, without its port.
        key: The key that it has shown; empty for a stranger.
        abort: Closes it at once.
    """

    address: str
    abort: Callable[[], None] = field(default=lambda: None, repr=False)
    key: bytes = b""


class ConnectionPool:
    """All open connections.

    Args:
        strangers: How many strangers there may be.
        per_address: How many of them may have the same address.
        per_key: How many connections a site may have.
    """

    def __init__(
        self, strangers: int = MAX_STRANGERS, per_address: int = MAX_PER_ADDRESS, per_key: int = MAX_PER_KEY
    ) -> None:
        self._limits = strangers, per_address, per_key
        self._groups: dict[tuple[str, bytes], dict[OpenConnection, None]] = {}  # see `_group`; the oldest first
        self.turned_away = 0  # strangers that had to go

    def __iter__(self) -> Iterator[OpenConnection]:
        return iter([connection for group in self._groups.values() for connection in group])

    @property
    def strangers(self) -> int:
        """The number of connections that have not presented a key."""
        return sum(len(group) for (_, key), group in self._groups.items() if not key)

    def add(self, connection: OpenConnection) -> None:
        """Enter a new connection as a stranger, after making room for it."""
        most, per_address, _ = self._limits
        own = self._groups.get(_group(connection), {})
        if len(own) >= per_address:
            self._close_oldest(own)
        elif self.strangers >= most:
            self._close_oldest(max((group for (_, key), group in self._groups.items() if not key), key=len))
        self._groups.setdefault(_group(connection), {})[connection] = None

    def promote(self, connection: OpenConnection, key: bytes) -> None:
        """Move a connection that has shown an admitted key to those of its site."""
        if connection.key == key:
            return
        self.remove(connection)
        connection.key = key
        own = self._groups.get(_group(connection), {})
        if len(own) >= self._limits[2]:
            self._close_oldest(own)
        self._groups.setdefault(_group(connection), {})[connection] = None

    def remove(self, connection: OpenConnection) -> None:
        """Forget a connection that has ended."""
        name = _group(connection)
        group = self._groups.get(name, {})
        group.pop(connection, None)
        if not group:
            self._groups.pop(name, None)

    def close_key(self, key: bytes) -> None:
        """Close all connections of a site, whose key is not admitted any more."""
        for connection in list(self._groups.get(("", key), {})):
            self.remove(connection)
            connection.abort()

    def _close_oldest(self, group: dict[OpenConnection, None]) -> None:
        oldest = next(iter(group))
        self.turned_away += not oldest.key
        self.remove(oldest)
        oldest.abort()


def _group(connection: OpenConnection) -> tuple[str, bytes]:
    """Return what connections are counted by: a stranger's address, or a site's key."""
    return ("", connection.key) if connection.key else (connection.address, b"")
