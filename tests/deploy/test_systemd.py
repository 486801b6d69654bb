"""The units for systemd: verified by systemd itself where it is at hand, and their commands run."""

import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rofl.federation.flower_internal.processes import free_port
from tests.data.user import places
from tests.deploy.containers import ROOT
from tests.federation.people import left_behind, until

UNITS = ROOT / "deploy" / "systemd"
HOME = "/srv/rofl"


def read_unit(name: str) -> configparser.SectionProxy:
    """The service section of a unit; lines that end with a backslash go on."""
    text = (UNITS / f"{name}.service").read_text()
    parser = configparser.RawConfigParser(strict=False, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(re.sub(r"\\\n\s*", " ", text))
    return parser["Service"]


def start(machine: Path, name: str, log: Path) -> "subprocess.Popen[bytes]":
    """Run a unit's command as systemd does, with a folder of this machine for /srv/rofl."""
    unit = read_unit(name)
    assert (unit["User"], unit["WorkingDirectory"]) == ("rofl", HOME)
    lines = (machine / "rofl.env").read_text().splitlines()
    environment = dict(line.split("=", 1) for line in lines)
    words = [word.replace("$$", "$").replace(HOME, str(machine)) for word in shlex.split(unit["ExecStart"])]
    words = [re.sub(r"\$\{(\w+)\}", lambda found: environment[found[1]], word) for word in words]
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(machine), "OMP_NUM_THREADS": "1", **environment}
    with open(log, "ab") as file:
        return subprocess.Popen(words, cwd=machine, env=variables, stdin=subprocess.DEVNULL, stdout=file, stderr=file)


def make_machine(place: Path, name: str, keys: Path, **settings: str) -> Path:
    """A machine's /srv/rofl, with this environment as its venv."""
    machine = place / name
    shutil.copytree(keys, machine / ("keys/server" if name == "coordinator" else "keys"))
    (machine / "venv" / "bin").mkdir(parents=True)
    program = machine / "venv" / "bin" / "rofl"
    source = os.pathsep.join(filter(None, sys.path))
    program.write_text(f"#!/bin/sh\nPYTHONPATH='{source}' exec '{sys.executable}' -m rofl \"$@\"\n")
    program.chmod(0o755)
    (machine / "rofl.env").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return machine


def test_a_stop_is_in_order_and_a_mistake_is_not_repeated() -> None:
    for name in ("rofl-serve", "rofl-join"):
        unit = read_unit(name)
        assert (unit["KillSignal"], unit["SuccessExitStatus"], unit["RestartPreventExitStatus"]) == (
            "SIGINT",
            "130",
            "2",
        )
        assert (unit["NoNewPrivileges"], unit["ProtectSystem"], unit["UMask"]) == ("yes", "strict", "0077")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not on this machine")
def test_systemd_finds_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "rofl").symlink_to("/bin/true")
    (tmp_path / "rofl.env").touch()
    for unit in UNITS.iterdir():
        (tmp_path / unit.name).write_text(unit.read_text().replace(HOME, str(tmp_path)))
    paths = [str(tmp_path / unit.name) for unit in UNITS.iterdir()]
    done = subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_the_units_run_a_federation_that_is_stopped_once(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")
    from rofl.federation.issue_credentials import make_credentials

    make_credentials(tmp_path / "keys", ["north", "south"], ["localhost"])
    port, keys = free_port(), tmp_path / "keys"
    options = f"--set rounds=6 --address 127.0.0.1:{port}"
    machines = [make_machine(tmp_path, "coordinator", keys / "server", ROFL_OPTIONS=options)]
    for name in ("north", "south"):
        machines.append(make_machine(tmp_path, name, keys / "sites" / name, ROFL_SERVER=f"localhost:{port}"))
        places.write_folder(machines[-1] / "scans", with_clients=False, each=12)
    units = ("rofl-serve", "rofl-join", "rofl-join")
    logs = [tmp_path / f"{machine.name}.log" for machine in machines]
    running = [start(machine, unit, log) for machine, unit, log in zip(machines, units, logs, strict=True)]
    try:
        rounds = machines[0] / "run" / "metrics.jsonl"
        until(lambda: rounds.is_file() or running[0].poll() is not None, logs[0].read_text, 900)
        running[0].send_signal(signal.SIGINT)
        assert running[0].wait(60) == 130, logs[0].read_text()
        running[0] = start(machines[0], units[0], logs[0])
        codes = [process.wait(600) for process in running]
        assert codes == [0, 0, 0], [log.read_text() for log in logs]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
    assert all((machine / "run" / "report.html").is_file() for machine in machines)
    assert len(rounds.read_text().splitlines()) == 6
    until(lambda: not left_behind(tmp_path), lambda: f"the end of {left_behind(tmp_path)}", 20)
