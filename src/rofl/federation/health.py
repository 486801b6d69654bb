"""Health checks of a coordinator or a site, for containers and clusters.

For that reason it imports the standard library only: torch alone would take seconds each time.
"""

import json
import ssl
import tomllib
from collections import deque
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from rofl.errors import UserError

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # addresses to listen on, and how to reach them from here
_SECONDS = 5.0  # for an answer


def check_health(folder: Path) -> str:
    """Return one sentence about the coordinator or the site that works in a run folder on this machine.

    A coordinator is well if its gateway answers with a certificate of its own federation. A site, which has no port, is
    well if it has joined. Whoever has finished is well.

    Args:
        folder: The run folder of `rofl serve` or `rofl join`.

    Raises:
        UserError: If the coordinator does not answer, or no run was started in this folder.
    """
    if (folder / "summary.json").is_file():
        return f"The run in {folder} is finished."
    if (folder / "serve.toml").is_file():
        _ask_gateway(folder / "serve.toml")
        rounds = folder / "metrics.jsonl"
        done = len(rounds.read_bytes().splitlines()) if rounds.is_file() else 0
        return f"The coordinator answers; {done} rounds are done."
    try:
        with open(folder / "federation-log.jsonl", "rb") as log:
            last = json.loads(deque(log, maxlen=1).pop())
            return f"The site is at work; the last entry of its log is {last['event']!r} at {last['time']}."
    except (OSError, IndexError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"No coordinator and no site is at work in {folder}.", "rofl serve or rofl join") from error


def _ask_gateway(settings: Path) -> None:
    """Ask the coordinator's own port which start this is; the certificate need not be for this machine's own name."""
    try:
        found = tomllib.loads(settings.read_text())
        host, _, port = str(found["address"]).rpartition(":")
        host = host.strip("[]")
        host, credentials = _ANYWHERE.get(host, host), str(found.get("credentials", ""))
        connection = HTTPConnection(host, int(port), timeout=_SECONDS)
        if credentials:
            trusted = ssl.create_default_context(cafile=f"{credentials}/ca.crt")
            trusted.check_hostname = False
            connection = HTTPSConnection(host, int(port), timeout=_SECONDS, context=trusted)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{settings} cannot be used ({error}).", "the folder that rofl serve wrote") from error
    try:
        connection.request("GET", "/v1/rofl")
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        raise UserError(f"The coordinator does not answer at port {port} ({error}).", "rofl serve --resume") from error
    finally:
        connection.close()
    if status != 200:
        raise UserError(f"What answers at port {port} is no coordinator (HTTP {status}).", "rofl serve --resume")
