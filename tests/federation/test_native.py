"""rofl as an app of Flower's own programs: `flwr run` in its simulation, and in a deployment of one's own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from rofl.federation.flower_internal.processes import FlowerProcess, free_port
from tests.federation.people import ROOT, sets, until

pytestmark = pytest.mark.slow

TINY = {"data.train": 150, "data.test": 60, "rounds": 3}
METHODS = {
    "rofl": {"method.t_pl": 2},  # with centroids, which travel
    "joint": {"method.name": "joint", "method.start": 1},  # with client states, which stay
}


class Flower:
    """Flower's programs with a home of their own, in `place`."""

    def __init__(self, place: Path) -> None:
        self.place, self.home = place, place / "flwr"
        self.home.mkdir()

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`flwr` itself."""
        return subprocess.run(
            ["flwr", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )

    def digest(self, connection: str, name: str, settings: dict[str, Any], *options: str) -> str:
        """What a run leaves in its digest file."""
        path = self.place / f"{name}.digest"
        words = " ".join(f"{key}={value}" for key, value in settings.items())
        config = ("--run-config", f'settings="{words}" digest-file="{path}"')
        said = self.call("run", str(ROOT / "examples" / "flower"), connection, "--stream", *config, *options).stdout
        (self.place / f"{name}.log").write_text(said)
        newest = self.runs(connection)[0]  # `flwr run --stream` itself ends with 0 whatever happened
        assert newest["status"] == "finished:completed", f"{newest['status-details']}\n{said[-5000:]}"
        return path.read_text()

    def runs(self, connection: str) -> list[dict[str, Any]]:
        """All runs, the newest first."""
        found: list[dict[str, Any]] = json.loads(self.call("ls", connection, "--format", "json").stdout)["runs"]
        return found

    def processes(self) -> list[int]:
        """Whoever has this home, however detached: programs hand their environment on."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):  # it ended, or is another user's
                if entry.name.isdigit() and int(entry.name) != os.getpid():
                    words = (entry / "environ").read_bytes().split(b"\0")
                    found += [int(entry.name)] * (f"FLWR_HOME={self.home}".encode() in words)
        return found

    def end(self) -> None:
        """End all of them, kindly first."""
        for how in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(process, how)
            with suppress(AssertionError):
                until(lambda: not self.processes(), "", 10)
        assert self.processes() == []


@pytest.fixture
def flower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flower]:
    programs = Flower(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FLWR_HOME", str(programs.home))
    monkeypatch.setenv("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", str(free_port()))
    for name in ("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "FLWR_DISABLE_UPDATE_CHECK"):
        monkeypatch.setenv(name, "1")
    for name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "0")
    yield programs
    programs.end()


def local_digest(out: Path, settings: dict[str, Any]) -> str:
    command = [sys.executable, "-m", "rofl", "run", "digits", *sets(settings), "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return str(json.loads((out / "summary.json").read_text())["digest"])


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'flwr[simulation]==1.41.0'")
def test_flowers_simulation_gives_the_digest_of_a_local_run(flower: Flower, tmp_path: Path) -> None:
    """Its SuperLink detaches itself, and has 15 seconds to start: a busy machine may need more than one of them."""
    until(lambda: flower.call("ls", "local").returncode == 0, "Flower's local SuperLink does not start", 120)
    for name, change in METHODS.items():
        settings = {**TINY, "clients": 3, "cohort": 2, **change}
        found = flower.digest("local", name, settings, "--federation-config", "num-supernodes=3")
        assert found == local_digest(tmp_path / name, settings)


def test_flowers_deployment_gives_it_too(flower: Flower, tmp_path: Path) -> None:
    """Every message has a process of its own there, so that a client's state comes from its SuperNode alone."""
    port = free_port()
    (flower.home / "config.toml").write_text(f'[superlink.mine]\naddress = "127.0.0.1:{port}"\ninsecure = true\n')
    with ExitStack() as stack:
        alone = ("--insecure", "--disable-runtime-dependency-installation", "--port", str(port))
        superlink = stack.enter_context(FlowerProcess(["flower-superlink", *alone], tmp_path, "superlink"))
        superlink.wait_for(port)
        for client in range(2):
            where = ("--insecure", "--superlink", f"127.0.0.1:{port}", "--port", str(free_port()))
            command = ["flower-supernode", *where, "--node-config", f"partition-id={client}"]
            stack.enter_context(FlowerProcess(command, tmp_path, f"supernode-{client}"))
        for name, change in METHODS.items():
            settings = {**TINY, "clients": 2, "cohort": 2, "rounds": 2, **change}
            assert flower.digest("mine", name, settings) == local_digest(tmp_path / name, settings)
