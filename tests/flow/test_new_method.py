"""The method of docs/new-method.md, saved as the page says, runs as the page says."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import rofl
from rofl.cli.main import app
from rofl.config.overrides import parse_override
from rofl.core.tensors import Tensors, digest
from rofl.methods import FedAvg, Method
from rofl.training.run_dir import RunDir

PAGE = (Path(__file__).parents[2] / "docs" / "new-method.md").read_text()
FEW = ("rounds=2", "clients=4", "cohort=2", "data.train=120", "data.test=60", "model.name=mlp", "method.epochs=1")
QUICK = [word for change in FEW for word in ("--set", change)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "fedprox.py").write_text(snippet)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)  # for worker processes
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("fedprox", None)


def run(*words: str) -> None:
    done = CliRunner().invoke(app, [*words, *QUICK])
    assert done.exit_code == 0, f"{done.output} {done.exception}"


def test_the_commands_of_the_page_run(folder: Path) -> None:
    (block,) = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)
    commands = [shlex.split(line.partition("rofl ")[2]) for line in block.splitlines()]
    assert [words[0] for words in commands] == ["run", "compare", "benchmark"]
    for words in commands[:2]:
        run(*words, "--workers", "0")
    planned = CliRunner().invoke(app, [*commands[2], "--cells", "plain", "--plan"])
    assert planned.exit_code == 0, f"{planned.output} {planned.exception}"


def test_workers_give_the_same_bits_and_the_penalty_counts(folder: Path) -> None:
    kind = import_module("fedprox").FedProx
    few = dict(parse_override(change) for change in FEW if "epochs" not in change)
    experiment = rofl.preset("digits", **{key.replace(".", "__"): value for key, value in few.items()})

    def train(name: str, method: Method, workers: int = 0) -> Tensors:
        rofl.run(experiment, folder / name, method=method, workers=workers)
        checkpoint = RunDir(folder / name).checkpoints.read()
        assert checkpoint is not None
        return checkpoint.server_state.model

    here = train("here", kind(mu=0.5, batch=10, epochs=1))
    assert digest(here) == digest(train("workers", kind(mu=0.5, batch=10, epochs=1), workers=1))
    without, fedavg = train("without", kind(mu=0.0, batch=10, epochs=1)), train("fedavg", FedAvg(batch=10, epochs=1))
    assert digest(here) != digest(without)
    for name, tensor in without.items():
        torch.testing.assert_close(tensor, fedavg[name], rtol=1e-4, atol=1e-6)
