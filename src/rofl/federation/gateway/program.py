"""The gateway's program: `python -m rofl.federation.gateway.program SETTINGS DESCRIPTOR`.

SETTINGS are those of `GatewaySettings` as JSON; DESCRIPTOR is that of a listening socket. A line on stdin is a JSON
list of the keys that are admitted from then on; the end of stdin ends the program. A line on stdout is a JSON text that
says why a site was refused.
"""

import asyncio
import json
import socket
import sys
import threading
from base64 import b64decode

from rofl.federation.gateway.admission import AdmittedKey
from rofl.federation.gateway.gateway_settings import GatewaySettings
from rofl.federation.gateway.server import GatewayServer


def main() -> None:
    """Serve until stdin ends."""
    settings, listener = GatewaySettings(**json.loads(sys.argv[1])), socket.socket(fileno=int(sys.argv[2]))
    keys = _parse_keys(sys.stdin.readline())
    asyncio.run(_serve(GatewayServer(settings, listener, keys, _report)))


async def _serve(server: GatewayServer) -> None:
    loop = asyncio.get_running_loop()

    def read_keys() -> None:
        for line in sys.stdin:
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


if __name__ == "__main__":
    main()
