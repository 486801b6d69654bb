"""The coordinator's handle of the gateway process."""

import ipaddress
import json
import secrets
import socket
import subprocess
import sys
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from rofl.core.version import __version__
from rofl.errors import UserError
from rofl.federation.gateway.admission import AdmittedKey
from rofl.federation.gateway.gateway_settings import GatewaySettings, server_context
from rofl.federation.log_throttle import LogThrottle

_MAX_HOLD = 20.0  # a site gives up after 30 s without an answer; its signature is valid for 300 s
_GRACE = 3.0  # seconds that the process has to end


class Gateway:
    """Runs the gateway in a separate process, from `__enter__` to `__exit__`.

    The listening socket belongs to the calling process, so that connections wait and are not refused while the gateway
    is restarted.

    Args:
        address: The address to listen on, as `host:port`; port 0 takes a free port.
        settings: The settings of the gateway.
        keys: The sites' keys; not used without TLS.
        log: The file for the errors of the process.

    Attributes:
        port: The port that it listens on, after `__enter__`.
    """

    def __init__(self, address: str, settings: GatewaySettings, keys: Iterable[AdmittedKey], log: Path) -> None:
        self.settings, self.port = settings, 0
        self._address, self._keys, self._log = address, list(keys), log
        self._refusals, self._counting = Counter[str](), threading.Lock()  # since the last look, by reason
        self._throttle, self._pushed = LogThrottle(), threading.Event()

    def __enter__(self) -> Self:
        self._listener = listen(self._address, self.settings)
        self.port = self._listener.getsockname()[1]
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        with suppress(OSError):
            self._stdin.close()  # ends the process
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def set_keys(self, keys: Iterable[AdmittedKey]) -> None:
        """Replace the admitted keys."""
        self._keys = list(keys)
        with suppress(OSError):  # if the process has ended, `refresh` starts another
            self._send_keys()

    def wake(self) -> None:
        """Let held polls look for messages at once; called after messages were given to the SuperLink."""
        with suppress(OSError, ValueError):
            self._send_line(None)

    def wait_for_push(self, seconds: float) -> None:
        """Wait up to so many seconds until a site has given something to the SuperLink."""
        self._pushed.wait(seconds)
        self._pushed.clear()

    def refresh(self) -> list[str]:
        """Restart the process if it has ended, and return messages about refused sites.

        The first refusal of a kind is returned at once, later ones together once a minute, however often a site tries.
        """
        if self._process.poll() is not None:
            self._reader.join()
            with suppress(OSError):
                self._stdin.close()
            self._start()
        with self._counting:
            refusals, self._refusals = self._refusals, Counter[str]()
        told = [(reason, self._throttle.note(reason, times)) for reason, times in refusals.items()]
        told += filter(None, [self._throttle.overdue()])
        return [_refusal_sentence(reason, times) for reason, times in told if times]

    def _start(self) -> None:
        descriptor = self._listener.fileno()
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "rofl.federation.gateway.program",
                    json.dumps(asdict(self.settings)),
                    str(descriptor),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                pass_fds=[descriptor],
                start_new_session=True,  # so that Ctrl-C reaches this process only, which then ends it
            )
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        self._reader = threading.Thread(target=self._read_lines, args=(self._process,), daemon=True)
        self._reader.start()
        self._send_keys()

    def _send_keys(self) -> None:
        lines = [{**asdict(each), "key": b64encode(each.key).decode()} for each in self._keys]
        self._send_line(lines)

    def _send_line(self, content: list[dict[str, object]] | None) -> None:
        self._stdin.write(json.dumps(content) + "\n")
        self._stdin.flush()

    def _read_lines(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                reason = json.loads(line)
                if reason is None:
                    self._pushed.set()
                    continue
                with self._counting:
                    self._refusals[reason] += 1


def _refusal_sentence(reason: str, times: int) -> str:
    return f"A site was refused: {reason}." if times == 1 else f"Sites were refused {times} times, last: {reason}."


def make_settings(
    superlink: str, tls: tuple[Path, Path] | None, superlink_ca: Path | None, hold: float = 5.0, max_bytes: int = 2**31
) -> GatewaySettings:
    """Return gateway settings with a new random instance name.

    Args:
        superlink: The address of the SuperLink, as `host:port`.
        tls: The files of certificate and private key; None for plain HTTP, which `listen` allows on loopback only.
        superlink_ca: The authority that signed the SuperLink's certificate; None if the SuperLink speaks plain HTTP.
        hold: Seconds for which a poll without a result is held (long polling).
        max_bytes: The size of the largest accepted request.
    """
    if not 0 <= hold <= _MAX_HOLD:
        raise ValueError(f"hold must be from 0 to {_MAX_HOLD}, not {hold}")
    certificate, key = map(str, tls) if tls else ("", "")
    return GatewaySettings(
        instance=secrets.token_hex(8),
        version=__version__,
        superlink=f"{'http' if superlink_ca is None else 'https'}://{superlink}",
        superlink_ca=str(superlink_ca or ""),
        certificate=certificate,
        key=key,
        hold=hold,
        max_bytes=max_bytes,
    )


def listen(address: str, settings: GatewaySettings) -> socket.socket:
    """Return a socket that listens on an address; without TLS only loopback addresses are allowed.

    Raises:
        UserError: If the certificate cannot be used, or the address is malformed, in use, or may not be listened on.
    """
    if settings.certificate:
        try:
            server_context(settings.certificate, settings.key)
        except OSError as error:
            problem = f"The certificate {settings.certificate} cannot be used with the key {settings.key}."
            raise UserError(problem, "both files") from error
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise UserError(f"{address!r} is not an address.", "a host and a port, such as '0.0.0.0:9443'")
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        if not settings.certificate and not ipaddress.ip_address(str(place[0])).is_loopback:
            raise UserError(f"Without certificates nothing may listen on {address}.", "make credentials first")
        return socket.create_server(place[:2], family=family)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (")[0].lower()
        raise UserError(f"The coordinator cannot listen on {address}: {reason}.", "another port or host") from error
