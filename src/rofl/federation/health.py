"""Health checks of a coordinator or a site, for containers and clusters.

Imports the standard library only, because importing torch would add seconds to every check.
"""

import json
import os
import ssl
import stat
import tomllib
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import BinaryIO

from rofl.errors import UserError, one_line

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # wildcard address -> loopback address that reaches it
_SECONDS = 5.0  # timeout for an answer
_MOST = 2**20  # bytes to read at once; of a longer log only the end is read


def check_health(folder: Path) -> str:
    """Return the state of the coordinator or site of a run folder, in one sentence.

    A coordinator is healthy if its gateway answers with a certificate of its own federation. A site has no port; it is
    healthy if it has joined. A finished run is healthy.

    Args:
        folder: The run folder of `rofl serve` or `rofl join`.

    Raises:
        UserError: If the coordinator does not answer, no run was started in this folder, or one of its files is a link.
    """
    if _read_end(folder / "summary.json") is not None:
        return f"The run in {folder} is finished."
    settings = _read_end(folder / "serve.toml")
    if settings is not None:
        _ask_gateway(folder / "serve.toml", settings)
        return f"The coordinator answers; {_count_lines(folder / 'metrics.jsonl')} rounds are done."
    try:
        last = json.loads((_read_end(folder / "federation-log.jsonl") or b"").splitlines()[-1])
        return one_line(f"The site is at work; the last entry of its log is {last['event']!r} at {last['time']}.")
    except (IndexError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"No coordinator and no site is running in {folder}.", "rofl serve or rofl join") from error


def _open(path: Path) -> BinaryIO | None:
    """Open a regular file of a run folder without following links; None if there is no such file."""
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            raise UserError(f"{path} is a link, and links are not followed.", "a copy of what it leads to")
        if not stat.S_ISREG(found.st_mode):
            return None
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).") from error


def _read_end(path: Path) -> bytes | None:
    """Return the last `_MOST` bytes of a file; None if there is no such file."""
    file = _open(path)
    if file is None:
        return None
    with file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST))
        return file.read(_MOST)


def _count_lines(path: Path) -> int:
    file = _open(path)
    if file is None:
        return 0
    with file:
        return sum(part.count(b"\n") for part in iter(lambda: file.read(_MOST), b""))


def _ask_gateway(path: Path, settings: bytes) -> None:
    """Send a request to the coordinator's gateway; the certificate need not name this machine's own host.

    Args:
        path: The file of the coordinator's settings, for error messages.
        settings: The content of the file.

    Raises:
        UserError: If the settings cannot be used, or no coordinator answers.
    """
    try:
        found = tomllib.loads(settings.decode())
        host, _, port = str(found["address"]).rpartition(":")
        if not 0 < int(port) < 2**16:
            raise ValueError("its port")
        host = host.strip("[]")
        host, credentials = _ANYWHERE.get(host, host), str(found.get("credentials", ""))
        connection = HTTPConnection(host, int(port), timeout=_SECONDS)
        if credentials:
            trusted = ssl.create_default_context(cafile=f"{credentials}/ca.crt")
            trusted.check_hostname = False
            connection = HTTPSConnection(host, int(port), timeout=_SECONDS, context=trusted)
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise UserError(f"{path} cannot be used ({error}).", "the folder that rofl serve wrote") from error
    try:
        connection.request("GET", "/v1/rofl")
        status = connection.getresponse().status
    except (OSError, HTTPException, ValueError) as error:  # ValueError: an invalid host name
        raise UserError(f"The coordinator does not answer at port {port} ({error}).", "rofl serve --resume") from error
    finally:
        connection.close()
    if status != 200:
        raise UserError(f"The server at port {port} is not a coordinator (HTTP {status}).", "rofl serve --resume")
