"""The gateway's program: `python -m rofl.federation.gateway.program SETTINGS DESCRIPTOR`.

SETTINGS is `GatewaySettings` as JSON, and DESCRIPTOR the file descriptor of a listening socket. Each line on stdin is a
JSON list of keys that replaces the admitted keys, or `null` if the SuperLink has new messages for sites; the end of
stdin ends the program. Each line on stdout is a JSON string with the reason why a site was refused, or `null` if a site
has given something to the SuperLink.
"""

import asyncio
import json
import logging
import socket
import sys
import threading
from base64 import b64decode
from typing import TextIO

from rofl.federation.gateway.admission import AdmittedKey
from rofl.federation.gateway.gateway_settings import GatewaySettings
from rofl.federation.gateway.server import GatewayServer
from rofl.federation.log_throttle import LogThrottle

_NEWS = "null\n"
_LINES = 100  # of warnings on stderr, before they become one a minute


def main() -> None:
    """Serve until stdin ends."""
    settings, listener = GatewaySettings(**json.loads(sys.argv[1])), socket.socket(fileno=int(sys.argv[2]))
    keys = _parse_keys(sys.stdin.readline())
    logging.getLogger().addHandler(ThrottledHandler())  # asyncio warns about connections, which strangers make
    asyncio.run(_serve(GatewayServer(settings, listener, keys, _report, _report_push)))


class ThrottledHandler(logging.StreamHandler[TextIO]):
    """Writes warnings to stderr, but not as many as strangers can cause."""

    def __init__(self) -> None:
        super().__init__()
        self.setLevel(logging.WARNING)
        self._throttle = LogThrottle(_LINES, most=1)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning, unless too many were written."""
        times = self._throttle.note(record.name)
        if times > 1:
            self.stream.write(f"{times} warnings; the last:\n")
        if times:
            super().emit(record)


async def _serve(server: GatewayServer) -> None:
    loop = asyncio.get_running_loop()

    def read_keys() -> None:
        for line in sys.stdin:
            if line == _NEWS:
                loop.call_soon_threadsafe(server.wake)
            else:
                loop.call_soon_threadsafe(server.set_keys, _parse_keys(line))
        server.stop()

    threading.Thread(target=read_keys, daemon=True).start()
    await server.run()


def _parse_keys(line: str) -> list[AdmittedKey]:
    found = json.loads(line) if line.strip() else []
    return [AdmittedKey(each["site"], b64decode(each["key"]), each["expires"], each["revoked"]) for each in found]


def _report(reason: str) -> None:
    sys.stdout.write(json.dumps(reason) + "\n")
    sys.stdout.flush()


def _report_push() -> None:
    sys.stdout.write(_NEWS)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
