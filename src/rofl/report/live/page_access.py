"""Access to the live view: this user on this machine, and anyone with the token.

A browser on this machine may be made to call us by a page from elsewhere. Such a page reads nothing, since it has
another origin, unless its name is made to point at this machine (DNS rebinding); therefore `Host` has to be an address,
this machine's name, or the name that we listen on.
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

_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")  # of a proxy, whose own address says nothing
_FEWEST = 20  # characters of a token
_MOST = 500


@dataclass(frozen=True)
class PageAccess:
    """The rules of access.

    Attributes:
        host: The name or address that we listen on.
        token: What a reader has to know who is not this user on this machine.
    """

    host: str
    token: str

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach us."""
        return is_loopback(self.host)

    def knows_host(self, header: str) -> bool:
        """Return whether a `Host` header is one that no page from elsewhere can have.

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
        """Return whether an `Authorization` header has the token; the time that it takes does not depend on it."""
        kind, _, value = authorization.partition(" ")
        return kind == "Bearer" and secrets.compare_digest(value.encode(), self.token.encode())

    def is_own_user(self, peer: Address, local: Address, headers: set[str]) -> bool:
        """Return whether a connection is of a program of this user, or of root, on this machine.

        Args:
            peer: The other end.
            local: Our end.
            headers: The names of the request's headers.
        """
        if not self.is_loopback or not is_loopback(peer[0]) or headers.intersection(_FORWARDED):
            return False
        return socket_owner(peer, local) in (0, os.getuid())


def is_loopback(host: str) -> bool:
    """Return whether a name or address is this machine only.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    return host.casefold() == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def socket_owner(own: Address, other: Address) -> int | None:
    """Return the user number of a socket's owner on this machine, as Linux lists it; None where it cannot be told.

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
    """Return a token that nobody guesses."""
    return secrets.token_urlsafe(32)


def read_token(path: Path) -> str:
    """Return the token in a file; where there is no file, one is made, for this user's eyes only.

    Raises:
        UserError: The file cannot be used, others may read it, or its token is too short.
    """
    try:
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w") as file:
                file.write(f"{new_token()}\n")
        if not path.is_file():
            raise UserError(f"{path} is no file, and is to hold a token.", "another --token-file")
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise UserError(f"Others may read {path}, which is to hold a token.", f"chmod 600 {path}")
        token = read_regular(path, _MOST).decode("ascii").strip()
    except OSError as error:
        raise UserError(f"The token file {path} cannot be used ({error.strerror}).", "another --token-file") from error
    except UnicodeDecodeError:
        token = ""
    if len(token) < _FEWEST or not token.isprintable() or " " in token:
        raise UserError(
            f"{path} holds no token of at least {_FEWEST} letters and digits.", "a file that is not there yet"
        )
    return token


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _hexadecimal(address: Address) -> str:
    """Return an address and a port as /proc/net/tcp has them: each four bytes in the machine's order.

    >>> _hexadecimal(("127.0.0.1", 80)) in ("0100007F:0050", "7F000001:0050")
    True
    """
    packed = ipaddress.ip_address(address[0]).packed
    words = [int.from_bytes(packed[start : start + 4], sys.byteorder) for start in range(0, len(packed), 4)]
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
