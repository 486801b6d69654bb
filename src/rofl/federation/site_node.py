"""A site's connection to the coordinator: keeps a SuperNode running, and executes its tasks in this process.

The SuperNode is Flower's program that talks to the coordinator. It is restarted when it ends, when the coordinator was
restarted, and when Flower loses a message. Client states are stored in a file, so that a restart loses nothing.
"""

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import httpx
from flwr.app import Context, Message

from rofl.data import atomic
from rofl.errors import UserError, one_line
from rofl.federation.client_app import SiteData, make_client_app
from rofl.federation.coordinator_link import CoordinatorLink
from rofl.federation.credentials import SiteCredentials
from rofl.federation.flower_internal.processes import FlowerProcess, free_port, new_secret, start_supernode
from rofl.federation.flower_internal.runtime import TaskClient, deactivate_node, do_client_task
from rofl.federation.log_throttle import LogThrottle
from rofl.federation.protocol import RoundRequest
from rofl.federation.site_gate import Declined, SiteGate
from rofl.federation.site_memory import StateFile
from rofl.training.run_files import exclusive

_POLL_BUSY, _POLL_IDLE = 0.05, 0.2  # seconds between two polls for a task: right after a task, and at most
_POLL_SERVER = 2.0  # seconds between two checks that the coordinator answers
_RETRY = 1.0  # seconds before a retry
_PATIENCE = 20.0  # seconds without an answer of the coordinator after which the site reconnects
_LINGER = 5.0  # seconds for sending the refusal of a site that declines
_GOODBYE = 1.0  # seconds for sending the reply to the coordinator's last message
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
    _declined: Declined | None = None
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
            while not self._confirmed and (instance := self._wait_for_coordinator()) is not None:
                secret, port = new_secret(self.home), free_port()
                self._deactivate_old_node()
                tls = (self.credentials.ca, self.credentials.key) if self.credentials else None
                with start_supernode(self.home, port, secret, self.server, self.client, tls) as node:
                    with suppress(UserError):  # if it ended at once, `_work` reports its last log line
                        node.wait_for(port)
                    self._work(node, TaskClient(f"127.0.0.1:{port}", secret.read_bytes()), instance)
            (self.home / "secret").unlink(missing_ok=True)
            shutil.rmtree(self.home / "flwr", ignore_errors=True)
            shutil.rmtree(self.home / "masks", ignore_errors=True)  # so that recorded sums cannot be unmasked later

    def _work(self, node: FlowerProcess, tasks: TaskClient, instance: str) -> None:
        """Execute tasks until the coordinator or the SuperNode is gone, or the coordinator confirms the end.

        Args:
            node: The SuperNode.
            tasks: The client that acquires the SuperNode's tasks.
            instance: The name of the coordinator's current start; another name ends this connection.
        """
        checked = answered = last_task = time.monotonic()
        end = float("inf")
        try:
            while time.monotonic() < end:
                try:
                    if do_client_task(tasks, self._handle):
                        last_task = time.monotonic()
                        end = time.monotonic() + _GOODBYE if self._confirmed else end
                        if self._declined is not None:
                            time.sleep(_LINGER)  # so that the refusal reaches the coordinator
                            raise self._declined
                        continue
                except httpx.HTTPError:  # the SuperNode is starting, or has ended, which is checked below
                    pass
                except RuntimeError as error:  # Flower lost the task's message; a new connection gets it again
                    self.on_message(f"Connecting again: {error}")
                    return
                if not node.running:
                    self.on_message(f"The connection could not be made, or ended: {node.last_log_line()}")
                    time.sleep(_RETRY)
                    return
                if time.monotonic() - checked > _POLL_SERVER:
                    checked = time.monotonic()
                    found = self._link.instance()
                    answered = checked if found else answered
                    if found not in (None, instance) or checked - answered > _PATIENCE:
                        return
                time.sleep(min(_POLL_IDLE, _POLL_BUSY + 0.1 * (time.monotonic() - last_task)))
        finally:
            tasks.close()

    def _handle(self, message: Message, context: Context) -> Message:
        """Call the ClientApp, with client states that survive a restart of the SuperNode.

        Also writes the node's id to a file, for `_deactivate_old_node` of the next start. Reports an exception to the
        user and raises it again, so that `do_client_task` makes an error reply of it.
        """
        state_file = StateFile(self.home / "memory.safetensors")
        state_file.load_into(context.state)
        atomic.atomic_write(self.home / "node", str(context.node_id))
        try:
            with self.gate.limits():
                reply = self._client_app(message, context)
        except Declined as error:
            self._declined = error
            raise
        except Exception as error:  # the coordinator gets an error reply, and continues without this site
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

    def _wait_for_coordinator(self) -> str | None:
        """Wait for the coordinator and return the name of its start; None if a finished site stops waiting."""
        announced, begun = False, time.monotonic()
        while (instance := self._link.instance()) is None:
            if self.finished and time.monotonic() - begun > _CONFIRMATION:
                self.on_message("The coordinator did not confirm that it has everything; this site's results are here.")
                return None
            if not announced:
                self.on_message(f"The coordinator at {self.server} does not answer; trying again until it does.")
                announced = True
            time.sleep(_RETRY)
        return instance

    def _deactivate_old_node(self) -> None:
        """Deactivate the node of a killed process, which Flower would list as connected for another minute."""
        node_file = self.home / "node"
        if self.credentials is not None and node_file.is_file():
            with suppress(ValueError, httpx.HTTPError):
                deactivate_node(
                    self.server, int(node_file.read_text()), self.credentials.ca.read_bytes(), self.credentials.key
                )
