"""The processes of a coordinator: a SuperLink, the gateway that sites connect to, and a Flower run.

SuperLink and gateway are child processes; the SuperLink listens on loopback only. This process itself executes the
Flower run, so that no code is shipped and no further process is started.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rofl.data.user.names import plural
from rofl.federation.credentials import ServerCredentials
from rofl.federation.event_log import EventLog
from rofl.federation.flower_internal.processes import free_port, new_secret, start_superlink
from rofl.federation.flower_internal.superlink import Control, TaskClient, server_grid
from rofl.federation.gateway.process import Gateway, make_settings
from rofl.federation.server_config import ServerConfig
from rofl.federation.site_info import SITES_FILE, SitesFile
from rofl.federation.site_keys import KeyWatch, SiteKeys
from rofl.federation.site_registry import SiteRegistry

_HOLD = 15.0  # seconds that a site's poll for work is held
_MAX_REQUEST = 2**26  # bytes; Flower sends arrays in pieces of 5 MB


@contextmanager
def open_server(
    home: Path, config: ServerConfig, on_message: Callable[[str], None], log: EventLog
) -> Iterator[SiteRegistry]:
    """Start SuperLink, gateway and a Flower run, and yield the registry of sites; stop them with the block.

    Args:
        home: A folder for logs and Flower's own files.
        config: Where and how sites connect.
        on_message: Called with status messages for the user.
        log: The log of requests and replies.

    Raises:
        UserError: If the credentials cannot be read, the address is refused, or the SuperLink does not start.
    """
    credentials = ServerCredentials.read(Path(config.credentials)) if config.credentials else None
    home.mkdir(parents=True, exist_ok=True)
    port, secret = free_port(), new_secret(home)
    ca = credentials.ca.read_bytes() if credentials else None
    tls = (credentials.ca, credentials.certificate, credentials.key) if credentials else None
    superlink_address = f"127.0.0.1:{port}"
    superlink_ca = credentials.ca if credentials else None
    admitted = credentials.admitted if credentials else ()
    settings = make_settings(superlink_address, tls and tls[1:], superlink_ca, _HOLD, _MAX_REQUEST)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home / "flwr", ignore_errors=True)
        stack.callback(secret.unlink, missing_ok=True)
        # The gateway starts first, since its address may be refused. It answers 503 until the SuperLink is ready.
        gateway = stack.enter_context(Gateway(config.address, settings, admitted, home / "gateway.log"))
        superlink = stack.enter_context(start_superlink(home, port, secret, tls))
        superlink.wait_for(port)
        control = Control(superlink_address, ca)
        stack.callback(control.close)
        keys = SiteKeys()
        if credentials is not None:
            folder = Path(config.credentials)
            watch = KeyWatch(folder, credentials, control.register, gateway.set_keys, keys)
            watch.begin()
            keys.authority, keys.refresh = credentials.ca.read_bytes(), watch.refresh
        control.start_run()
        tasks = TaskClient(superlink_address, secret.read_bytes(), ca)
        stack.callback(tasks.close)
        grid = stack.enter_context(server_grid(tasks))
        grid.on_push, grid.wait = gateway.wake, gateway.wait_for_push
        on_message(f"Waiting for {plural(config.clients, 'site')} at port {gateway.port}.")
        changes = keys.refresh

        def refresh() -> list[str]:
            return [*changes(), *gateway.refresh()]

        keys.refresh = refresh
        yield SiteRegistry(grid, config.clients, keys, on_message, log, SitesFile(home.parent / SITES_FILE))
