"""Flower's SuperLink as a child process that ends with its parent."""

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

_SUPERVISOR = Path(__file__).with_name("supervisor.py")  # run as a script: as a module it would import all of rofl
_SUPERLINK = Path(__file__).with_name("superlink_program.py")
_GRACE = 5.0  # seconds that a program has to end after SIGTERM
_START = 300.0  # seconds that a program has to listen; a busy machine may take a minute


class FlowerProcess:
    """A Flower program in its own process group, under a supervisor.

    The supervisor ends the program when the parent process is gone, even after kill -9.

    Args:
        command: The program's path, or its name in the folder of this Python, and its arguments.
        home: A folder for the log and for Flower's own files.
        name: The name of the log, without its suffix.
    """

    def __init__(self, command: Sequence[str], home: Path, name: str) -> None:
        self.log = home / f"{name}.log"
        program = Path(sys.executable).parent / command[0]
        quiet = {"FLWR_HOME": str(home / "flwr"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        with open(self.log, "ab") as log:  # for the supervisor itself, which opens it again for the program
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_SUPERVISOR), str(self.log), str(program), *command[1:]],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **quiet},
                start_new_session=True,  # Ctrl-C must reach only this process, which then ends the program
            )

    def __enter__(self) -> "FlowerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the program is still running."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the program; the supervisor notices that its stdin is closed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_GRACE + 2)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def last_log_line(self) -> str:
        """Return the last non-empty line of the program's log."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "its log is empty"

    def wait_for(self, port: int, seconds: float = _START) -> None:
        """Wait until the program listens on a port of this machine.

        Raises:
            UserError: If the program ends, or does not listen within `seconds`.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.running:
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise UserError(f"{self.log.stem} did not start: {self.last_log_line()}", f"see {self.log}")


def start_superlink(home: Path, port: int, secret: Path, tls: tuple[Path, Path, Path] | None) -> FlowerProcess:
    """Start a SuperLink that listens on loopback only.

    Args:
        home: A folder for the log and for Flower's own files.
        port: The port to listen on.
        secret: A file; only programs that know its content can acquire tasks.
        tls: The authority's certificate, the coordinator's, and its private key; None for plain HTTP.
    """
    security = ["--insecure"]
    if tls is not None:
        ca, certificate, key = map(str, tls)
        security = ["--ssl-ca-certfile", ca, "--ssl-certfile", certificate, "--ssl-keyfile", key]
        security.append("--enable-supernode-auth")
    address = ["--host", "127.0.0.1", "--port", str(port)]
    tasks = ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
    return FlowerProcess(
        [
            *(sys.executable, "-P", str(_SUPERLINK), "flower-superlink"),
            *(*security, *address, *tasks, "--disable-runtime-dependency-installation"),
        ],
        home,
        "superlink",
    )


def new_secret(home: Path) -> Path:
    """Write a new random secret to `home/secret`, which only this user can read, and return the path."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / "secret"
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(32))
    return path


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
