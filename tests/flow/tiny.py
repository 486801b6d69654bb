"""Runs of a second or less, in this process or in one that can be killed."""

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import rofl
from rofl.config.schema import Experiment
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods import FedAvg, RoundContext, ServerState, Update
from rofl.models import Network
from rofl.training.loop import Listener

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)  # workers inherit the path; they must find this module

SETTINGS: dict[str, Any] = {
    "rounds": 4,
    "clients": 4,
    "cohort": 3,
    "data__train": 120,
    "data__test": 60,
    "model__name": "mlp",
    "model__width": 0.125,
    "method__epochs": 1,
    "method__t_pl": 2,
}


@dataclass(frozen=True)
class Remember(FedAvg):
    """FedAvg whose clients start where they ended: each adds a share of its own last change before it trains."""

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                parameter.add_(client_state.get(name, torch.zeros(())), alpha=0.5)
        update, _ = super().client_update(net, server_state, client_state, data, ctx)
        return update, {name: value / update.weight for name, value in update.model.items()}


METHODS_OF_TESTS = {"remember": Remember}


def tiny(**changes: Any) -> Experiment:
    """A small experiment on digits; METHODS must know `remember` where that is asked for."""
    settings = {**SETTINGS, **changes}
    if settings.get("method", "rofl") != "rofl":
        del settings["method__t_pl"]
    return rofl.preset("digits", **settings)


@dataclass(frozen=True)
class Outcome:
    """All of a run that must not depend on how it came about."""

    digest: str
    summary: dict[str, Any]
    history: list[dict[str, Any]]
    suspects: dict[str, str]
    features: bytes


def outcome(folder: Path) -> Outcome:
    """What a finished run left on disk, without its times."""
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return Outcome(
        summary["digest"],
        {name: value for name, value in summary.items() if not name.startswith("seconds")},
        [{name: value for name, value in line.items() if name != "seconds"} for line in lines],
        {path.name: path.read_text() for path in sorted((folder / "suspects").iterdir())},
        (folder / "features.safetensors").read_bytes(),
    )


class Killed(BaseException):
    """Nothing handles it: as far as the disk can tell, the process is gone."""


def kill_after(index: int) -> Listener:
    """A listener that ends the run when a round is on disk."""

    def listener(_: Experiment, entry: Mapping[str, Any]) -> None:
        if entry.round == index:
            raise Killed

    return listener


def undisturbed(experiment: Experiment) -> Outcome:
    """The outcome of the experiment when nothing happens to it; computed once, in a process with two threads."""
    return _undisturbed(experiment.toml())


@functools.cache
def _undisturbed(toml: str) -> Outcome:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with tempfile.TemporaryDirectory() as place:
            return outcome(rofl.run(Experiment(**tomllib.loads(toml)), Path(place) / "run", workers=0).folder)
    finally:
        torch.set_num_threads(before)


_PROGRAM = """
import sys, time, tomllib
import rofl
from rofl.config.schema import Experiment
from rofl.errors import Interrupted
from rofl.methods import METHODS
from tests.flow.tiny import METHODS_OF_TESTS
METHODS.update(METHODS_OF_TESTS)
settings, folder, workers, pause = sys.argv[1:]

def listener(experiment, entry):
    if entry.round == int(pause):
        time.sleep(600)

try:
    rofl.run(Experiment(**tomllib.loads(settings)), folder, workers=int(workers), listener=listener)
    print("finished", flush=True)
except Interrupted as stop:
    print("stopped", stop.index, stop.folder, flush=True)
"""


@contextmanager
def start(experiment: Experiment, folder: Path, workers: int = 0, pause: int = 0) -> "Iterator[subprocess.Popen[str]]":
    """The run in a process and a session of its own, which ends with the block; it falls asleep after round `pause`."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, experiment.toml(), str(folder), str(workers), str(pause)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_lines(process: "subprocess.Popen[str]", folder: Path, count: int, patience: float = 120) -> None:
    """Until metrics.jsonl has so many lines, or the process has ended."""
    path, deadline = folder / "metrics.jsonl", time.monotonic() + patience
    while process.poll() is None and time.monotonic() < deadline:
        if path.is_file() and path.read_text().count("\n") >= count:
            return
        time.sleep(0.002)
