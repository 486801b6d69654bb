"""A site's part in a federation: connects to the coordinator, handles its messages, and connects again.

A connection ends when a call fails, for example because the coordinator was restarted. The next connection gets the
unanswered message again. Client states are stored in a file, so that a restart loses nothing.
"""

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, Message, RecordDict

from rofl.data import atomic
from rofl.errors import UserError, one_line
from rofl.federation.client_app import SiteData, make_client_app
from rofl.federation.coordinator_link import CoordinatorLink
from rofl.federation.credentials import SiteCredentials, load_private_key
from rofl.federation.flower_internal.fleet_connection import ConnectionLostError, FleetConnection, NotReadyError
from rofl.federation.flower_internal.whole_messages import error_reply
from rofl.federation.log_throttle import LogThrottle
from rofl.federation.protocol import RoundRequest
from rofl.federation.site_gate import Declined, SiteGate
from rofl.federation.site_memory import StateFile
from rofl.training.run_files import exclusive

_RETRY = 1.0  # seconds before a retry
_CONFIRMATION = 120.0  # seconds that a finished site waits for a coordinator that does not answer


@dataclass
class SiteNode:
    """One site's part in a federation.

    Attributes:
        server: The coordinator's host and port.
        data: The site's data.
        client: The site's number, counted from 0.
        home: A folder for logs, client states and Flower's own files.
        credentials: The site's key and the trusted certificate; None for a federation on one machine.
        on_message: Called with status messages for the user.
        gate: Checks requests and replies with the site's policy, masks and log.
        finished: Whether the site has finished its part, even if the coordinator has not confirmed it.
    """

    server: str
    data: SiteData
    client: int
    home: Path
    credentials: SiteCredentials | None
    on_message: Callable[[str], None]
    gate: SiteGate = field(default_factory=SiteGate)
    finished: bool = False
    _confirmed: bool = False
    _rounds: set[int] = field(default_factory=set)
    _throttle: LogThrottle = field(default_factory=lambda: LogThrottle(repeats=100))

    def run(self) -> None:
        """Take part until the coordinator ends the run; the coordinator may start late, stop, and be resumed.

        A finished site stays until the coordinator confirms that it has everything, because a coordinator that was
        killed repeats its requests. It gives up when the coordinator has not answered for two minutes.

        Raises:
            UserError: If another program uses the same folder, another server answers in the coordinator's place, the
                coordinator refuses the site, or the user declines to take part.
        """
        with exclusive(self.home.parent, "rofl join", links=True):
            while not self._confirmed and self._wait_for_coordinator():
                try:
                    connection = self._connection()
                    self._deactivate_old_node(connection)
                    with connection:
                        atomic.atomic_write(self.home / "node", str(connection.node))
                        self._work(connection)
                except NotReadyError:
                    time.sleep(_RETRY)
                except ConnectionLostError as error:
                    self._tell(f"The connection could not be made, or ended: {str(error).rstrip('.')}.")
                    time.sleep(_RETRY)
            shutil.rmtree(self.home / "masks", ignore_errors=True)  # so that recorded sums cannot be unmasked later

    def _work(self, connection: FleetConnection) -> None:
        """Answer messages until the coordinator confirms the end.

        Raises:
            ConnectionLostError: If the connection ends before.
            Declined: If the user declines to take part.
        """
        while not self._confirmed:
            message = connection.receive()
            if message is None:
                continue
            try:
                reply = self._handle(message)
            except Exception as error:  # the coordinator gets an error reply, and continues without this site
                connection.send(error_reply(message, error))
                if isinstance(error, Declined):
                    raise
                continue
            connection.send(reply)

    def _handle(self, message: Message) -> Message:
        """Call the ClientApp, with client states that survive a restart; tell the user about an exception."""
        run, node = message.metadata.run_id, message.metadata.dst_node_id
        context = Context(run, node, {"partition-id": self.client}, RecordDict(), {})
        state_file = StateFile(self.home / "memory.safetensors")
        state_file.load_into(context.state)
        try:
            with self.gate.limits():
                reply = self._client_app(message, context)
        except Declined:
            raise
        except Exception as error:
            name = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
            self._tell(f"The request failed: {name}{error}")
            raise
        state_file.save(context.state)
        kind = message.metadata.message_type
        if kind == "query.finish" and not self.finished:
            self.on_message("This site's part is done; waiting until the coordinator has everything.")
        self.finished = self.finished or kind == "query.finish"
        self._confirmed = self._confirmed or (kind == "query.confirm" and self.finished)
        return reply

    def _tell(self, sentence: str) -> None:
        """Say what the coordinator can cause at will; of what it causes again and again, a line a minute."""
        sentence = one_line(sentence)
        times = self._throttle.note(sentence)
        if times:
            self.on_message(sentence if times == 1 else f"{sentence} ({times} such things)")

    @cached_property
    def _link(self) -> CoordinatorLink:
        return CoordinatorLink(self.server, self.credentials)

    @cached_property
    def _client_app(self) -> Callable[[Message, Context], Message]:
        self.gate.on_request, self.gate.on_message = self._announce, self.on_message
        return make_client_app(self.data, lambda context: self.gate)

    def _announce(self, kind: str, request: RoundRequest) -> None:
        """Report a request of the coordinator to the user."""
        if kind == "describe":
            self._tell("Connected; the coordinator asked who is here.")
        elif kind == "train":
            again = " again" if request.index in self._rounds else ""
            self._rounds.add(request.index)
            self._tell(f"Round {request.index}: training on this site's samples{again}.")
        elif kind == "finish":
            self._tell("The last round is done; judging this site's labels.")

    def _wait_for_coordinator(self) -> bool:
        """Wait for the coordinator, and return whether it answers; False if a finished site stops waiting."""
        announced, begun = False, time.monotonic()
        while self._link.instance() is None:
            if self.finished and time.monotonic() - begun > _CONFIRMATION:
                self.on_message("The coordinator did not confirm that it has everything; this site's results are here.")
                return False
            if not announced:
                self.on_message(f"The coordinator at {self.server} does not answer; trying again until it does.")
                announced = True
            time.sleep(_RETRY)
        return True

    def _connection(self) -> FleetConnection:
        if self.credentials is None:
            return FleetConnection(self.server)
        key = load_private_key(self.credentials.key, load_ssh_private_key)
        return FleetConnection(self.server, self.credentials.ca.read_bytes(), key)

    def _deactivate_old_node(self, connection: FleetConnection) -> None:
        """Deactivate the node of a killed process, which Flower would list as connected for half a minute."""
        node_file = self.home / "node"
        if self.credentials is not None and node_file.is_file():
            with suppress(ValueError):
                connection.deactivate(int(node_file.read_text()))
