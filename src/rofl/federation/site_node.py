"""A site's connection to the coordinator: keeps a SuperNode running, and does its tasks in this process.

The SuperNode is Flower's program that talks to the coordinator. It is restarted when it ends, when the coordinator
was restarted, and when Flower loses a message; the client states are in a file, so that nothing is lost by it.
"""

import shutil
import ssl
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
from rofl.federation.credentials import SiteCredentials
from rofl.federation.flower_internal.processes import FlowerProcess, free_port, new_secret, start_supernode
from rofl.federation.flower_internal.runtime import TaskClient, deactivate_node, do_client_task
from rofl.federation.protocol import RoundRequest
from rofl.federation.state_file import StateFile
from rofl.training.lock import exclusive

_POLL_BUSY, _POLL_IDLE = 0.05, 0.2  # seconds between two polls for a task: after a task, and when none came for long
_POLL_SERVER = 2.0  # seconds between two checks that the coordinator is there
_RETRY = 1.0  # seconds before another try
_LINGER = 5.0  # seconds in which the last reply can leave, where the coordinator stays


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
    """

    server: str
    data: SiteData
    client: int
    home: Path
    credentials: SiteCredentials | None
    on_message: Callable[[str], None]
    _finished: bool = False
    _rounds: set[int] = field(default_factory=set)

    def run(self) -> None:
        """Take part until the coordinator ends the run; the coordinator may start late, stop, and be resumed.

        Raises:
            UserError: If another program uses the same folder, or another program answers in the coordinator's place.
        """
        with exclusive(self.home.parent, "rofl join"):
            while not self._finished:
                instance = self._wait_for_coordinator()
                secret, port = new_secret(self.home), free_port()
                self._deactivate_old_node()
                tls = (self.credentials.ca, self.credentials.key) if self.credentials else None
                with start_supernode(self.home, port, secret, self.server, self.client, tls) as node:
                    with suppress(UserError):  # it ended at once: `_work` reports its last log line
                        node.wait_for(port)
                    self._work(node, TaskClient(f"127.0.0.1:{port}", secret.read_bytes()), instance)
            secret.unlink(missing_ok=True)
            shutil.rmtree(self.home / "flwr", ignore_errors=True)

    def _work(self, node: FlowerProcess, tasks: TaskClient, instance: str) -> None:
        """Do tasks while the coordinator and the SuperNode are there.

        Args:
            node: The SuperNode.
            tasks: Where its tasks are.
            instance: The coordinator's start; another value ends this connection.
        """
        checked = last_task = time.monotonic()
        end = float("inf")
        try:
            while time.monotonic() < end:
                try:
                    if do_client_task(tasks, self._handle):
                        last_task = time.monotonic()
                        end = time.monotonic() + _LINGER if self._finished else end
                        continue
                except httpx.HTTPError:  # the SuperNode starts, or has ended, which is checked below
                    pass
                except RuntimeError as error:  # Flower gave a task without its message; a new connection gets it again
                    self.on_message(f"The connection is made anew: {error}")
                    return
                if not node.running:
                    self.on_message(f"The connection could not be made, or ended: {node.last_log_line()}")
                    time.sleep(_RETRY)
                    return
                if time.monotonic() - checked > _POLL_SERVER:
                    checked = time.monotonic()
                    if self._instance() != instance:
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
            reply = self._client_app(message, context)
        except UserError as error:  # the coordinator gets an error reply, and goes on without us
            self.on_message(f"This could not be done: {error}")
            raise
        except Exception as error:
            self.on_message(f"This could not be done: {type(error).__name__}: {error}")
            raise
        state_file.save(context.state)
        self._finished = self._finished or message.metadata.message_type == "query.finish"
        return reply

    @cached_property
    def _client_app(self) -> Callable[[Message, Context], Message]:
        return make_client_app(self.data, self._announce)

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

    def _wait_for_coordinator(self) -> str:
        """Return which start of the coordinator answers, once it does."""
        announced = False
        while (instance := self._instance()) is None:
            if not announced:
                self.on_message(f"The coordinator at {self.server} does not answer; trying again until it does.")
                announced = True
            time.sleep(_RETRY)
        return instance

    def _instance(self) -> str | None:
        """Return the random name of the coordinator's start, or None if it does not answer.

        Raises:
            UserError: If the certificate of whoever answers was not signed by this federation's authority.
        """
        try:
            return str(self._http.get("/v1/rofl").raise_for_status().json()["instance"])
        except (httpx.HTTPError, ValueError, KeyError) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                problem = f"Whoever answers at {self.server} cannot prove to be the coordinator ({error})."
                raise UserError(problem, "this federation's ca.crt, and a host that was named in --init") from error
            return None

    @cached_property
    def _http(self) -> httpx.Client:
        """An HTTP client that trusts this federation's authority only."""
        if self.credentials is None:
            return httpx.Client(base_url=f"http://{self.server}", timeout=5, trust_env=False)
        trusted = ssl.create_default_context(cafile=str(self.credentials.ca))
        return httpx.Client(base_url=f"https://{self.server}", timeout=5, verify=trusted, trust_env=False)

    def _deactivate_old_node(self) -> None:
        """Take the connection of a process that was killed off Flower's list, where it would stay for a minute."""
        node_file = self.home / "node"
        if self.credentials is not None and node_file.is_file():
            with suppress(ValueError, httpx.HTTPError):
                deactivate_node(
                    self.server, int(node_file.read_text()), self.credentials.ca.read_bytes(), self.credentials.key
                )
