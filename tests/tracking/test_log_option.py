"""--log on the command line."""

import json
import re
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rofl.cli import main
from rofl.tracking.tensorboard_tracker import TensorBoardTracker

PAGE = (Path(__file__).parents[2] / "docs" / "logging.md").read_text()
TINY = ["rounds=2", "data.train=120", "data.test=60", "clients=4", "cohort=2", "model.name=mlp", "model.width=0.125"]
SETS = [word for change in TINY for word in ("--set", change)]


@pytest.fixture
def rofl(tmp_path, monkeypatch):
    """The command line, in this process."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["rofl", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code

    return call


def steps(folder: Path) -> list[int]:
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    return [event.step for event in events.Scalars("accuracy/test")]


def test_an_unknown_name_is_told_with_the_right_ones(rofl, tmp_path, capsys) -> None:
    assert rofl("run", "digits", "--log", "tensorbord") == 2
    assert "'tensorboard' (there are: mlflow, tensorboard)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
@pytest.mark.parametrize("command", ["run", "compare"])
def test_an_absent_package_is_told_before_training(name, command, rofl, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    for module in [module for module in sys.modules if module.startswith((f"{name}.", "rofl.tracking."))]:
        if module.startswith(name):
            monkeypatch.setitem(sys.modules, module, None)
        elif not module.endswith((".follow", ".tracker", ".logged_values")):
            monkeypatch.delitem(sys.modules, module)
    assert rofl(command, "digits", "--log", name) == 2
    assert f"pip install 'fed-noisy-labels[{name}]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_run_survives_its_tracker_and_resume_hands_over_the_rest(rofl, tmp_path, monkeypatch, capsys) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TensorBoardTracker, "add_round", lambda self, entry: Path("/dev/full").write_text("x"))
        assert rofl("run", *SETS, "--workers", "0", "--log", "tensorboard", "--json") == 0
    said = capsys.readouterr()
    folder = Path(json.loads(said.out)["folder"])
    assert said.err.count("warning: tensorboard") == 1
    assert rofl("resume", str(folder), "--log", "tensorboard", "--json") == 0
    assert "warning" not in capsys.readouterr().err
    assert steps(folder) == [1, 2]


def test_compare_logs_every_run(rofl, tmp_path) -> None:
    assert rofl("compare", *SETS, "--methods", "plain", "--seeds", "2", "--workers", "0", "--log", "tensorboard") == 0
    assert [steps(tmp_path / "runs" / "compare-digits" / f"plain-s{seed}") for seed in (0, 1)] == [[1, 2]] * 2


def test_the_snippet_of_the_page_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    quick = snippet.replace(
        'rofl.preset("digits"', 'rofl.preset("digits", rounds=1, clients=2, cohort=1, data__train=100'
    )
    quick = quick.replace("listener=log", "listener=log, workers=0")
    assert quick.count("=log, workers=0") == quick.count("rounds=1") == 1
    exec(quick, {})
    assert len(list((tmp_path / "runs" / "logged" / "tensorboard").iterdir())) == 1
