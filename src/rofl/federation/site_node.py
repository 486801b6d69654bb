"""A site's connection to the coordinator: keeps a SuperNode running, and does its tasks in this process.

The SuperNode is Flower's program that talks to the coordinator. It is restarted when it ends, when the coordinator
was restarted, and when Flower loses a message; the client states are in a file, so that nothing is lost by it.
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
from rofl.errors import UserError
from rofl.federation.client_app import SiteData, make_client_app
from rofl.federation.coordinator_link import CoordinatorLink
from rofl.federation.credentials import SiteCredentials
from rofl.federation.flower_internal.processes import FlowerProcess, free_port, new_secret, start_supernode
from rofl.federation.flower_internal.runtime import TaskClient, deactivate_node, do_client_task
from rofl.federation.protocol import RoundRequest
from rofl.federation.site_gate import Declined, SiteGate
from rofl.federation.state_file import StateFile
from rofl.training.run_files import exclusive

_POLL_BUSY, _POLL_IDLE = 0.05, 0.2  # seconds between two polls for a task: after a task, and when none came for long
_POLL_SERVER = 2.0  # seconds between two checks that the coordinator is there
_RETRY = 1.0  # seconds before another try
_PATIENCE = 20.0  # seconds for which the coordinator may not answer before the site connects again
_LINGER = 5.0  # seconds for the last message to be sent
_GOODBYE = 1.0  # seconds for the reply to the coordinator's last message to be sent
_CONFIRMATION = 120.0  # seconds for which a site that is done waits for a coordinator that does not answer


@dataclass
class SiteNode:
    """One site's part in a federation.

    Attributes:
        server: The coordinator's host and port.
        data: The site's data.
        client: The site's number, counted from 0.
        home: A folder for logs, client states and Flower's own files.
        credentials: Its key and the certificate to trust; None on one machine only.
        on_message: Called with sentences for people.
        gate: What requests and replies pass: the site's policy, masks and log.
        finished: Whether the site has done its part already, and the coordinator may not know it yet.
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

    def run(self) -> None:
        """Take part until the coordinator ends the run; the coordinator may start late, stop, and be resumed.

        A site that has done its part stays until the coordinator confirms that it has everything, since a coordinator
        that was killed asks again; it does not wait for one that is gone for longer than two minutes.

        Raises:
            UserError: If another program uses the same folder, another program answers in the coordinator's place, or
                the people here decline to take part.
        """
        with exclusive(self.home.parent, "rofl join", links=True):
            while not self._confirmed and (instance := self._wait_for_coordinator()) is not None:
                secret, port = new_secret(self.home), free_port()
                self._deactivate_old_node()
                tls = (self.credentials.ca, self.credentials.key) if self.credentials else None
                with start_supernode(self.home, port, secret, self.server, self.client, tls) as node:
                    with suppress(UserError):  # it ended at once: `_work` reports its last log line
                        node.wait_for(port)
                    self._work(node, TaskClient(f"127.0.0.1:{port}", secret.read_bytes()), instance)
            (self.home / "secret").unlink(missing_ok=True)
            shutil.rmtree(self.home / "flwr", ignore_errors=True)
            shutil.rmtree(self.home / "masks", ignore_errors=True)  # so that recorded sums cannot be unmasked later

    def _work(self, node: FlowerProcess, tasks: TaskClient, instance: str) -> None:
        """Do tasks while the coordinator and the SuperNode are there.

        Args:
            node: The SuperNode.
            tasks: Where its tasks are.
            instance: The coordinator's start; another value ends this connection.
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
                            time.sleep(_LINGER)  # so that the coordinator is told
                            raise self._declined
                        continue
                except httpx.HTTPError:  # the SuperNode starts, or has ended, which is checked below
                    pass
                except RuntimeError as error:  # Flower gave a task without its message; a new connection gets it again
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
        """Call the ClientApp, with client states that outlive the SuperNode.

        The node's id is written to a file as well, for `_deactivate_old_node` of the next start. An exception is
        reported here and raised again: `do_client_task` makes an error reply of it.
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
        except UserError as error:  # the coordinator gets an error reply, and goes on without us
            self.on_message(f"This could not be done: {error}")
            raise
        except Exception as error:
            self.on_message(f"This could not be done: {type(error).__name__}: {error}")
            raise
        state_file.save(context.state)
        kind = message.metadata.message_type
        if kind == "query.finish" and not self.finished:
            self.on_message("This site's part is done; waiting until the coordinator has everything.")
        self.finished = self.finished or kind == "query.finish"
        self._confirmed = self._confirmed or (kind == "query.confirm" and self.finished)
        return reply

    @cached_property
    def _link(self) -> CoordinatorLink:
        return CoordinatorLink(self.server, self.credentials)

    @cached_property
    def _client_app(self) -> Callable[[Message, Context], Message]:
        self.gate.on_request, self.gate.on_message = self._announce, self.on_message
        return make_client_app(self.data, lambda context: self.gate)

    def _announce(self, kind: str, request: RoundRequest) -> None:
        """Say what the coordinator asks for."""
        if kind == "describe":
            self.on_message("Connected; the coordinator asked who is here.")
        elif kind == "train":
            again = " again" if request.index in self._rounds else ""
            self._rounds.add(request.index)
            self.on_message(f"Round {request.index}: training on this site's samples{again}.")
        elif kind == "finish":
            self.on_message("The last round is done; judging this site's labels.")

    def _wait_for_coordinator(self) -> str | None:
        """Return which start of the coordinator answers, once it does; None where it is not needed any more."""
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
        """Take the connection of a process that was killed off Flower's list, where it would stay for a minute."""
        node_file = self.home / "node"
        if self.credentials is not None and node_file.is_file():
            with suppress(ValueError, httpx.HTTPError):
                deactivate_node(
                    self.server, int(node_file.read_text()), self.credentials.ca.read_bytes(), self.credentials.key
                )
