"""Access control of the live view: this user on this machine, and anyone with the token.

A foreign web page may make a browser on this machine send requests to the server. The same-origin policy keeps it from
reading the answers, unless its domain resolves to this machine (DNS rebinding). Therefore `Host` must be an IP address,
localhost, this machine's name, or the name that the server listens on.
"""

import ipaddress
import os
import secrets
import socket
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rofl.data.regular_file import read_regular
from rofl.errors import UserError

Address: TypeAlias = tuple[str, int]

_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")  # set by proxies, whose own address proves nothing
_FEWEST = 20  # minimum characters of a token
_MOST = 500


@dataclass(frozen=True)
class PageAccess:
    """The access rules of a live view.

    Attributes:
        host: The name or address that the server listens on.
        token: The secret that everyone but this user on this machine must send.
    """

    host: str
    token: str

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    def knows_host(self, header: str) -> bool:
        """Return whether a `Host` header names this server, which rules out DNS rebinding.

        >>> access = PageAccess("127.0.0.1", "")
        >>> [access.knows_host(name) for name in ("127.0.0.1:80", "[::1]:80", "localhost", "evil.example:80", "")]
        [True, True, True, False, False]
        """
        name = header.rpartition("]")[0].removeprefix("[") if header.startswith("[") else header.partition(":")[0]
        name = name.casefold()
        if _is_address(name) or name == "localhost":
            return True
        return not self.is_loopback and name in {self.host.casefold(), socket.gethostname().casefold()}

    def has_token(self, authorization: str) -> bool:
        """Return whether an `Authorization` header has the token, compared in constant time."""
        kind, _, value = authorization.partition(" ")
        return kind == "Bearer" and secrets.compare_digest(value.encode(), self.token.encode())

    def is_own_user(self, peer: Address, local: Address, headers: set[str]) -> bool:
        """Return whether a process of this user, or of root, on this machine opened a connection.

        Args:
            peer: The client's end of the connection.
            local: The server's end of the connection.
            headers: The names of the request's headers.
        """
        if not self.is_loopback or not is_loopback(peer[0]) or headers.intersection(_FORWARDED):
            return False
        return socket_owner(peer, local) in (0, os.getuid())


def is_loopback(host: str) -> bool:
    """Return whether a name or address is a loopback address.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    return host.casefold() == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def socket_owner(own: Address, other: Address) -> int | None:
    """Return the user id of a socket's owner on this machine, from Linux's /proc; None if it cannot be determined.

    Args:
        own: The address of the socket.
        other: The address that it is connected to.
    """
    with suppress(OSError, ValueError):
        table = "tcp6" if ":" in own[0] else "tcp"
        ends = [_hexadecimal(own), _hexadecimal(other)]
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1:3] == ends:
                return int(fields[7])
    return None


def new_token() -> str:
    """Return a random token of 256 bits."""
    return secrets.token_urlsafe(32)


def read_token(path: Path) -> str:
    """Return the token in a file; if there is no file, create one with a new token that only this user can read.

    Raises:
        UserError: The file cannot be used, other users may read it, or its token is too short.
    """
    try:
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w") as file:
                file.write(f"{new_token()}\n")
        if not path.is_file():
            raise UserError(f"{path} is not a file, so it cannot hold a token.", "another --token-file")
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise UserError(f"Other users may read the token file {path}.", f"chmod 600 {path}")
        token = read_regular(path, _MOST).decode("ascii").strip()
    except OSError as error:
        raise UserError(f"The token file {path} cannot be used ({error.strerror}).", "another --token-file") from error
    except UnicodeDecodeError:
        token = ""
    if len(token) < _FEWEST or not token.isprintable() or " " in token:
        raise UserError(
            f"{path} holds no token of at least {_FEWEST} letters and digits.", "a file that does not exist yet"
        )
    return token


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _hexadecimal(address: Address) -> str:
    """Return an address and a port in the format of /proc/net/tcp: groups of four bytes in the machine's byte order.

    >>> _hexadecimal(("127.0.0.1", 80)) in ("0100007F:0050", "7F000001:0050")
    True
    """
    packed = ipaddress.ip_address(address[0]).packed
    words = [int.from_bytes(packed[start : start + 4], sys.byteorder) for start in range(0, len(packed), 4)]
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
