"""Measure how far a reader walks through the source: from an image to the page, and from an update to the server.

A walk is measured by running the real commands. Its steps are the public functions of rofl in the order of their first
calls; constructors count. Left out are private helpers, functions inside functions, templates of the page, calls that
only fill a table while a module is imported, and a function that is first called from its own file, since the reader is
there already. `files` is the number of files that the steps are in, `room_changes` how often two consecutive steps are
in different rooms (entries at the top of the package).

- `local_walk`: `rofl run --data FOLDER --workers 0`, which ends by writing the page.
- `flower_walk`: `rofl serve` and then `rofl join` with one site on this machine. A step of the coordinator is not
  counted again for the site. Loading data and writing the page are left out: they are the local walk's.

A reader counted both by hand at commit 405572b: 68 files and 104 changes, 57 and 91. This script gives 67 and 108,
57 and 106 there.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

_DATA_AND_PAGE = (
    "data/",
    "report/",
    "scene.py",
    "scene_file.py",
    "labels_file.py",
    "atomic.py",
)  # the last four: 405572b
_SETTINGS = ("--method", "rofl", "--set", "rounds=2", "--set", "method.t_pl=1")  # with every loss term in round 2
_IMAGES, _SIDE = 20, 28
_SECONDS = 600  # for the two processes of the Flower walk, on a busy machine

Step = tuple[str, str]  # path below the package, qualified name


@dataclass(frozen=True)
class Walk:
    """The steps of one walk, each once."""

    steps: tuple[Step, ...]

    @property
    def files(self) -> int:
        """How many files a reader opens."""
        return len({path for path, _ in self.steps})

    @property
    def room_changes(self) -> int:
        """How often the next step is in another room."""
        rooms = [path.partition("/")[0].removesuffix(".py") for path, _ in self.steps]
        return sum(here != there for here, there in pairwise(rooms))

    def __str__(self) -> str:
        return f"{self.files} / {self.room_changes}"


def local_walk(source: Path) -> Walk:
    """Train on a folder of images with the package at `source`, up to the page."""
    with _workspace() as (folder, images):
        out = folder / "steps.json"
        command = ["run", "--data", str(images), "--out", str(folder / "run"), "--workers", "0", *_SETTINGS]
        _finish(_start(source, out, command))
        return Walk(_read_steps(out))


def flower_walk(source: Path) -> Walk:
    """Coordinate one site with the package at `source`; both run on this machine."""
    with _workspace() as (folder, images):
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        commands = {
            "serve": ["serve", "--clients", "1", "--address", address, *_SETTINGS],
            "join": ["join", "--server", address, "--client", "0", "--name", "north", "--data", str(images / "north")],
        }
        started = [
            _start(source, folder / f"{name}.json", [*command, "--insecure", "--out", str(folder / name)])
            for name, command in commands.items()
        ]
        try:
            for process in started:
                _finish(process)
        finally:
            for process in started:  # where one failed the other would wait for it
                process.kill()
        steps = [step for name in commands for step in _read_steps(folder / f"{name}.json")]
        return Walk(tuple(step for step in dict.fromkeys(steps) if not step[0].startswith(_DATA_AND_PAGE)))


@contextmanager
def _workspace() -> Iterator[tuple[Path, Path]]:
    """Give a folder to write to, and one with images of two classes at three owners."""
    import numpy as np
    from PIL import Image

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        for owner in ("north", "south", "west"):
            for number, label in enumerate(("cat", "dog")):
                place = folder / "images" / owner / label
                place.mkdir(parents=True)
                for index in range(_IMAGES):
                    pixels = rng.integers(0, 100, (_SIDE, _SIDE, 3)) + 120 * number
                    Image.fromarray(pixels.astype(np.uint8)).save(place / f"{index}.png")
        yield folder, folder / "images"


def _start(source: Path, out: Path, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a command of rofl whose steps are written to `out`."""
    environment = {**os.environ, "PYTHONPATH": str(source.resolve().parent), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, __file__, str(out), str(source.resolve()), *command]
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _finish(process: subprocess.Popen[bytes]) -> None:
    """Wait for a command, and raise what it wrote where it failed."""
    try:
        _, said = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    if process.returncode:
        raise RuntimeError(said.decode(errors="replace")[-2000:])


def _read_steps(path: Path) -> tuple[Step, ...]:
    return tuple((file, name) for file, name in json.loads(path.read_text()))


def _record(out: Path, source: str, command: Sequence[str]) -> None:
    """Run a command in this process, and write its steps."""
    import threading

    entered: dict[CodeType, bool] = {}  # in the order of first calls; whether that call came from another file
    prefix = f"{source}/"

    def on_event(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code in entered or not code.co_filename.startswith(prefix):
            return
        callers = [one.f_code for one in _callers(frame) if one.f_code.co_filename.startswith(prefix)]
        if not any(one.co_name == "<module>" for one in callers):
            entered[code] = not callers or callers[0].co_filename != code.co_filename

    sys.argv = ["rofl", *command]
    from rofl.cli import main

    threading.setprofile(on_event)
    sys.setprofile(on_event)
    try:
        main()
    finally:
        sys.setprofile(None)
        steps = [code for code, from_another in entered.items() if from_another and _is_public(code)]
        out.write_text(json.dumps([(code.co_filename.removeprefix(prefix), code.co_qualname) for code in steps]))


def _callers(frame: FrameType) -> Iterator[FrameType]:
    """Yield the frames that led to a call, the nearest first."""
    caller = frame.f_back
    while caller is not None:
        yield caller
        caller = caller.f_back


def _is_public(code: CodeType) -> bool:
    """Whether it is a function of a Python file, not a module's or class's body, and nothing in its name is private."""
    is_function = bool(code.co_flags & 1)  # CO_OPTIMIZED
    parts = code.co_qualname.split(".")
    named = all(not part.startswith(("_", "<")) or part in ("__init__", "__call__") for part in parts)
    path = Path(code.co_filename)
    return is_function and named and path.suffix == ".py" and path.stem != "__main__"


if __name__ == "__main__":
    _record(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
