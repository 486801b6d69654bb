"""Flower's own programs, SuperLink and SuperNode, as child processes that end with their parent."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rofl.errors import UserError

_KEEPER = Path(__file__).with_name("supervisor.py")  # by its path: as a module it would import all of rofl
_ENDING = 5.0  # seconds that a program has for a good end


class FlowerProcess:
    """A Flower program in a group of its own, with a keeper that ends it when this process is gone, even by kill -9.

    Args:
        command: what to run, from the folder of this Python.
        home: a folder for its log, its secret and what Flower writes.
        name: of the log.
    """

    def __init__(self, command: Sequence[str], home: Path, name: str) -> None:
        self.log = home / f"{name}.log"
        program = Path(sys.executable).parent / command[0]
        quiet = {"FLWR_HOME": str(home / "flwr"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_KEEPER), str(program), *command[1:]],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **quiet},
                start_new_session=True,  # Ctrl-C is for us, who then end it
            )

    def __enter__(self) -> "FlowerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it; the keeper sees that nobody holds its other end any more."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_ENDING + 2)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def last_words(self) -> str:
        """The last line of its log that says something."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"

    def wait_for(self, port: int, seconds: float = 60.0) -> None:
        """Wait until it listens."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.running:
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise UserError(f"{self.log.stem} did not start: {self.last_words()}", f"see {self.log}")


def start_superlink(home: Path, port: int, secret: Path, tls: tuple[Path, Path, Path] | None) -> FlowerProcess:
    """A SuperLink on this machine's own address only; `tls` is the CA's certificate, ours, and its key."""
    safe = ["--insecure"]
    if tls is not None:
        ca, certificate, key = map(str, tls)
        safe = ["--ssl-ca-certfile", ca, "--ssl-certfile", certificate, "--ssl-keyfile", key, "--enable-supernode-auth"]
    where = ["--host", "127.0.0.1", "--port", str(port)]
    how = ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
    return FlowerProcess(
        ["flower-superlink", *safe, *where, *how, "--disable-runtime-dependency-installation"], home, "superlink"
    )


def start_supernode(
    home: Path, port: int, secret: Path, superlink: str, client: int, tls: tuple[Path, Path] | None
) -> FlowerProcess:
    """A SuperNode that connects to `superlink`; `tls` is the CA's certificate and this site's private key."""
    safe = ["--insecure"]
    if tls is not None:
        ca, key = map(str, tls)
        safe = ["--root-certificates", ca, "--auth-supernode-private-key", key]
    where = ["--superlink", superlink, "--host", "127.0.0.1", "--port", str(port)]
    how = ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
    return FlowerProcess(
        ["flower-supernode", *safe, *where, *how, "--node-config", f"partition-id={client}"], home, "supernode"
    )


def new_secret(home: Path) -> Path:
    """A fresh secret in a file that only this user can read."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / "secret"
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(32))
    return path


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
