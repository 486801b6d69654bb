"""`rofl split`: one file, met again by every run."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from rofl.cli import main
from rofl.cli.app import app
from tests.flow.called import rofl

TINY = ["--set", "clients=5", "--set", "cohort=2", "--set", "data.train=600", "--set", "noise.client_spread=0.3"]
SHORT = ["--set", "rounds=1", "--set", "model.name=mlp", "--workers", "0", "--json"]


def test_a_split_is_written_described_and_used(tmp_path: Path) -> None:
    made = rofl("split", "digits", *TINY, "--seed", "3", "--out", "split.safetensors", "--json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    facts = json.loads(made.stdout)
    assert (facts["dataset"], facts["clients"], facts["samples"], facts["classes"]) == ("digits", 5, 600, 10)
    assert (facts["smallest_client"], facts["largest_client"], facts["seed"]) == (120, 120, 3)
    assert facts["noise"] == "symmetric 0.4 ± 0.3"
    assert len(facts["client_wrong"]) == 5
    assert min(facts["client_wrong"]) < 0.25 < 0.55 < max(facts["client_wrong"])
    use = made.stderr.split("rofl run: ")[1].split()  # what it says is what works
    assert use == ["--set", "data.split=split.safetensors"]

    shown = rofl("split", "digits", *TINY, *use, cwd=tmp_path)  # another seed, the same labels
    assert f"{100 * facts['wrong']:.1f} %" in shown.stdout
    low, high = (100 * extreme(facts["client_wrong"]) for extreme in (min, max))
    assert f"{low:.1f} to {high:.1f} %" in shown.stdout

    done = rofl("run", "digits", *TINY, *use, *SHORT, "--method", "plain", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["noise"]["achieved"] == facts["wrong"]


def test_mistakes_with_split_files_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("thesis")
    use = ["--set", "data.split=taken"]
    for arguments, said in (
        (["split", "--out", "taken"], "taken already exists. Try: another --out"),
        (["split", "--set", "noise.client_spread=0.5"], "Try: a smaller noise.client_spread"),
        (["split", "--set", "noise.kind=human"], "people's labels for cifar10, not for digits"),
        (["split", "--set", "data.split=absent"], "There is no split file absent. Try: rofl split --out absent"),
        (["run", *use, "--out", "run"], "taken is not a split file, or damaged"),
    ):
        monkeypatch.setattr(sys, "argv", ["rofl", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        told = capsys.readouterr()
        assert stop.value.code == 2
        assert said in " ".join(told.err.split())
        assert told.out == ""
    assert [path.read_text() for path in tmp_path.iterdir()] == ["thesis"]


def test_the_example_works_and_without_a_file_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = next(command for command in app.registered_commands if command.name == "split")
    assert command.epilog is not None
    words = shlex.split(command.epilog.removeprefix("Example: rofl "))
    made = rofl(*words, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "symmetric 0.4 ± 0.2" in made.stdout
    written = tmp_path / words[words.index("--out") + 1]
    assert written.is_file()
    written.unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["rofl", "split"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert list(tmp_path.iterdir()) == []


def test_the_old_name_works_is_hidden_and_says_the_new_one(tmp_path: Path) -> None:
    old, new = (rofl(name, "digits", *TINY, "--seed", "3", "--json", cwd=tmp_path) for name in ("scene", "split"))
    assert old.returncode == 0, old.stderr
    assert old.stdout == new.stdout
    assert old.stderr == "notice: rofl scene is now called rofl split\n"
    assert new.stderr == ""
    commands = {command.name: command for command in app.registered_commands}
    assert commands["scene"].hidden
    assert not commands["split"].hidden
