"""Real coordinators and sites as processes, with what they say in files, and nobody left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = float(os.environ.get("ROFL_PATIENCE", "1"))  # above 1 on a machine that is busy with other things
TINY = {"clients": 2, "cohort": 2, "rounds": 4, "data.train": 200, "data.test": 100}


class Person:
    """A process that runs a command of rofl; `path` has the folders of modules that it can import."""

    def __init__(self, name: str, place: Path, *arguments: str, bad: str = "", path: Sequence[Path] = (ROOT,)) -> None:
        self.log = place / f"{name}.log"
        start = ["-m", "tests.federation.bad_site", bad] if bad else ["-m", "rofl"]
        modules = os.pathsep.join(filter(None, [*map(str, path), os.environ.get("PYTHONPATH")]))
        quiet = {"OMP_NUM_THREADS": "1", "PYTHONPATH": modules}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *start, *arguments],
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **quiet},
                start_new_session=True,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str, seconds: float = 120) -> None:
        until(lambda: text in self.said() or self.process.poll() is not None, f"{text!r} in {self.log}", seconds)
        assert text in self.said(), self.said()[-3000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def code(self, seconds: float = 180) -> int:
        try:
            return self.process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.said()[-3000:]) from None


class People:
    """Everybody in one folder; at the end all are gone, and so is what they started."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.all: list[Person] = []

    def __enter__(self) -> "People":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.all:
            if each.process.poll() is None:
                each.kill()
        if kind is None:
            until(lambda: not left_behind(self.place), lambda: f"the end of {left_behind(self.place)}", 20)

    def rofl(self, name: str, *arguments: str, bad: str = "", path: Sequence[Path] = (ROOT,)) -> Person:
        person = Person(name, self.place, *arguments, bad=bad, path=path)
        self.all.append(person)
        return person

    def kill_program(self, *words: str) -> None:
        """kill -9 of one of Flower's programs that works in this folder."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _where(entry) == str(self.place):
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                if all(word in command for word in words) and "supervisor.py" not in command:
                    os.kill(int(entry.name), signal.SIGKILL)
                    return
        raise AssertionError(f"there is no {words}")

    def history(self, run: str = "run") -> list[dict[str, Any]]:
        path = self.place / run / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def summary(self, run: str = "run") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.place / run / "summary.json").read_text())
        return found

    def wait_for_round(self, index: int, run: str = "run") -> None:
        until(lambda: len(self.history(run)) >= index, f"round {index} of {run}", 180)


def until(true: Callable[[], object], what: str | Callable[[], str], seconds: float) -> None:
    deadline = time.monotonic() + seconds * PATIENCE
    while not true():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.05)


def left_behind(place: Path) -> list[str]:
    """Processes whose arguments or working folder name a place."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(place) in command or os.readlink(entry / "cwd") == str(place):
                found.append(command)
        except OSError:
            continue
    return found


def _where(entry: Path) -> str:
    try:
        return os.readlink(entry / "cwd")
    except OSError:
        return ""


def sets(settings: dict[str, Any]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
