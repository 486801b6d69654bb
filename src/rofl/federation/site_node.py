"""A site: keeps a SuperNode connected, does its tasks here, and says in plain words what goes on."""

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

_SOON, _LATER = 0.05, 0.2  # seconds between two looks for a task: at first, and when nothing comes for long
_PROBE = 2.0  # seconds between two looks at the coordinator
_AGAIN = 1.0  # seconds before another try
_FAREWELL = 5.0  # seconds for the last answer to leave, where the coordinator stays


@dataclass
class SiteNode:
    """One site's part in a federation.

    Attributes:
        server: the coordinator's host and port.
        host: the data.
        client: this site's number, counted from 0.
        home: a folder for logs, what the site remembers, and Flower's own files.
        credentials: None on one machine only.
        tell: is given sentences for people.
    """

    server: str
    host: SiteData
    client: int
    home: Path
    credentials: SiteCredentials | None
    tell: Callable[[str], None]
    _finished: bool = False
    _rounds: set[int] = field(default_factory=set)

    def run(self) -> None:
        """Take part until the coordinator says that it is over. It may come late, go, and come back."""
        with exclusive(self.home.parent, "rofl join"):
            while not self._finished:
                instance = self._await_coordinator()
                secret, port = new_secret(self.home), free_port()
                self._leave()
                keys = (self.credentials.ca, self.credentials.key) if self.credentials else None
                with start_supernode(self.home, port, secret, self.server, self.client, keys) as node:
                    with suppress(UserError):  # it ended at once: what it said is told below
                        node.wait_for(port)
                    self._work(node, TaskClient(f"127.0.0.1:{port}", secret.read_bytes()), instance)
            secret.unlink(missing_ok=True)
            shutil.rmtree(self.home / "flwr", ignore_errors=True)

    def _work(self, node: FlowerProcess, desk: TaskClient, instance: str) -> None:
        """Do tasks while the coordinator and the SuperNode are there."""
        looked = busy = time.monotonic()
        over = float("inf")
        try:
            while time.monotonic() < over:
                try:
                    if do_client_task(desk, self._app):
                        busy = time.monotonic()
                        over = time.monotonic() + _FAREWELL if self._finished else over
                        continue
                except httpx.HTTPError:  # the SuperNode starts or has ended, which is looked at below
                    pass
                except RuntimeError as error:  # Flower gave a task without its message; connected anew we get it again
                    self.tell(f"The connection is made anew: {error}")
                    return
                if not node.running:
                    self.tell(f"The connection could not be made, or ended: {node.last_words()}")
                    time.sleep(_AGAIN)
                    return
                if time.monotonic() - looked > _PROBE:
                    looked = time.monotonic()
                    if self._instance() != instance:
                        return
                time.sleep(min(_LATER, _SOON + 0.1 * (time.monotonic() - busy)))
        finally:
            desk.close()

    def _app(self, message: Message, context: Context) -> Message:
        """The ClientApp, with a memory that outlives the SuperNode's."""
        memory = StateFile(self.home / "memory.safetensors")
        memory.restore(context.state)
        atomic.atomic_write(self.home / "node", str(context.node_id))
        try:
            reply = self._client_app(message, context)
        except Exception as error:  # the coordinator is told, and goes on without us
            self.tell(f"This could not be done: {error}")
            raise
        memory.keep(context.state)
        self._finished = self._finished or message.metadata.message_type == "query.finish"
        return reply

    @cached_property
    def _client_app(self) -> Callable[[Message, Context], Message]:
        return make_client_app(self.host, self._note)

    def _note(self, kind: str, order: RoundRequest) -> None:
        """Plain words about what is asked for."""
        if kind == "describe":
            self.tell("Connected; the coordinator asked who is here.")
        elif kind == "train":
            again = " again" if order.index in self._rounds else ""
            self._rounds.add(order.index)
            self.tell(f"Round {order.index}: training on this site's samples{again}.")
        elif kind == "finish":
            self.tell("The last round is done; judging this site's labels.")

    def _await_coordinator(self) -> str:
        """Which coordinator is there, once it answers."""
        said = False
        while (instance := self._instance()) is None:
            if not said:
                self.tell(f"The coordinator at {self.server} does not answer; trying again until it does.")
                said = True
            time.sleep(_AGAIN)
        return instance

    def _instance(self) -> str | None:
        """Another value means that the coordinator was started anew."""
        try:
            return str(self._line.get("/v1/rofl").raise_for_status().json()["instance"])
        except (httpx.HTTPError, ValueError, KeyError) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                problem = f"Whoever answers at {self.server} cannot prove to be the coordinator ({error})."
                raise UserError(problem, "this federation's ca.crt, and a host that was named in --init") from error
            return None

    @cached_property
    def _line(self) -> httpx.Client:
        """For a look at whether the coordinator is there."""
        if self.credentials is None:
            return httpx.Client(base_url=f"http://{self.server}", timeout=5, trust_env=False)
        trusted = ssl.create_default_context(cafile=str(self.credentials.ca))
        return httpx.Client(base_url=f"https://{self.server}", timeout=5, verify=trusted, trust_env=False)

    def _leave(self) -> None:
        """Where this site was killed, it counts as connected for another minute; say that it is not."""
        note = self.home / "node"
        if self.credentials is not None and note.is_file():
            with suppress(ValueError, httpx.HTTPError):
                deactivate_node(
                    self.server, int(note.read_text()), self.credentials.ca.read_bytes(), self.credentials.key
                )
