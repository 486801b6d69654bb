"""The command line as a user meets it: real folders, and real processes where these matter."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from rofl.cli import main
from rofl.cli.app import app, print_message, print_warning
from rofl.config.presets import PRESETS
from rofl.data import DATASETS
from rofl.errors import UserError
from rofl.methods import METHODS
from rofl.training.saved_model.load_model import load_model
from tests.flow.called import rofl

FEW = ("rounds=3", "data.train=100", "data.test=60", "clients=4", "cohort=2", "model.name=mlp", "method.epochs=1")
TINY = [word for change in FEW for word in ("--set", change)]


def test_run_writes_the_folder_and_prints_json_on_stdout_only(tmp_path) -> None:
    done = rofl("run", "digits", *TINY, "--out", "here", "--workers", "0", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["method"] == "rofl"
    assert summary["folder"] == "here"
    for name in ("config.toml", "metrics.jsonl", "checkpoint.safetensors", "summary.json", "report.html"):
        assert (tmp_path / "here" / name).is_file(), name
    assert len(list((tmp_path / "here" / "suspects").glob("*.csv"))) == 4
    assert "round 3/3" in done.stderr

    again = rofl("run", "here/config.toml", "--out", "again", "--workers", "0", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["digest"] == summary["digest"]

    finished = rofl("resume", "here", "--json", cwd=tmp_path)
    assert json.loads(finished.stdout)["digest"] == summary["digest"]

    refused = rofl("run", "digits", *TINY, "--out", "here", cwd=tmp_path)
    assert refused.returncode == 2
    assert "already holds a run" in refused.stderr


def test_compare_makes_one_table_and_keeps_what_is_finished(tmp_path) -> None:
    arguments = ["compare", "digits", *TINY, "--seeds", "2", "--out", "both", "--workers", "0"]
    first = rofl(*arguments, "--json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    rows = json.loads(first.stdout)["methods"]
    assert [(row["method"], row["seeds"]) for row in rows] == [("plain", 2), ("rofl", 2)]
    second = rofl(*arguments, cwd=tmp_path)
    assert "round 3/3" in first.stderr
    assert "round 3/3" not in second.stderr
    assert "±" in second.stdout
    other = rofl(*arguments, "--set", "noise.ratio=0.1", cwd=tmp_path)
    assert other.returncode == 2
    assert "other settings" in other.stderr


def _commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        yield from _commands(command) if isinstance(command, click.Group) else [command]


def test_every_argument_and_option_of_every_command_has_help() -> None:
    whole = typer.main.get_command(app)
    assert isinstance(whole, click.Group)
    commands = list(_commands(whole))
    assert len(commands) > 20
    lacking = [(command.name, each.name) for command in commands for each in command.params if not each.help]
    assert lacking == []


MISTAKES = {
    "preset": (["run", "digit"], "'digits'"),
    "key": (["run", "--set", "noise.rato=0.4"], "'noise.ratio'"),
    "method key": (["run", "--set", "method.lambda_cent=1"], "'method.lambda_cen'"),
    "method": (["run", "digits", "--method", "rolf"], "'rofl'"),
    "model": (["run", "--set", "model.name=cnn"], "'cnn9'"),
    "data set": (["run", "--set", "data.name=mnits"], "'mnist'"),
    "ratio": (["run", "--set", "noise.ratio=1.5"], "noise.ratio"),
    "learning rate": (["run", "--set", "method.lr=fast"], "lr"),
    "cohort": (["run", "--set", "cohort=50"], "cohort = 50"),
    "form of --set": (["run", "--set", "seed"], "key=value"),
    "file": (["run", "absent.toml"], "absent.toml"),
    "folder": (["resume", "nowhere"], "nowhere"),
    "compared method": (["compare", "--methods", "plain,rofi"], "'rofl'"),
    "report": (["report", "nowhere"], "nowhere"),
    "too many clients": (["run", "--set", "clients=2000", "--set", "cohort=2"], "too few"),
    "option": (["run", "--sett", "seed=1"], "--set"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_with_the_next_thing_to_try(mistake, tmp_path, monkeypatch, capsys) -> None:
    arguments, hint = MISTAKES[mistake]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["rofl", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert hint in " ".join(said.err.split())
    assert said.out == ""
    assert not (tmp_path / "runs").exists()


OLD = """rounds = 1
[data]
train = 200
light = 0.1
[noise]
spread = 0.1
"""


NEW = OLD.replace("light", "brightness").replace("spread", "client_spread")


def test_old_names_of_settings_work_with_one_line_each(tmp_path) -> None:
    (tmp_path / "old.toml").write_text(OLD)
    (tmp_path / "new.toml").write_text(NEW)
    old = rofl("split", "old.toml", "--set", "noise.spread=0.2", "--set", "seed=1", "--json", cwd=tmp_path)
    new = rofl("split", "new.toml", "--set", "noise.client_spread=0.2", "--set", "seed=1", "--json", cwd=tmp_path)
    assert old.returncode == 0, old.stderr
    assert old.stderr.splitlines() == [
        "notice: data.light is now called data.brightness",
        "notice: noise.spread is now called noise.client_spread",
    ]
    assert (new.stdout, new.stderr) == (old.stdout, "")
    value = rofl("split", "--set", "data.partition=drawn", "--set", "data.each=9", "--json", cwd=tmp_path)
    assert json.loads(value.stdout)["largest_client"] == 9
    assert value.stderr.splitlines() == [
        "notice: data.partition = drawn is now called data.partition = sampled",
        "notice: data.each is now called data.samples_per_client",
    ]


METHOD = """
from dataclasses import dataclass

from rofl.methods import FedAvg


@dataclass(frozen=True)
class Halved(FedAvg):
    \"\"\"FedAvg that moves half as far.\"\"\"

    share: float = 0.5

    def server_update(self, server_state, total, ctx):
        moved = super().server_update(server_state, total, ctx)
        model = {k: v + self.share * (moved.model[k] - v) if v.is_floating_point() else v
                 for k, v in server_state.model.items()}
        return type(moved)(model, moved.aux)
"""


@pytest.mark.slow
def test_a_method_in_a_file_of_the_current_folder_is_trained_resumed_and_compared(tmp_path) -> None:
    (tmp_path / "my_methods.py").write_text(METHOD)

    def program(*words: str, **extra: str) -> subprocess.CompletedProcess[str]:
        command, there = [Path(sys.executable).with_name("rofl"), *words], {**os.environ, **extra}
        return subprocess.run(command, cwd=tmp_path, env=there, capture_output=True, text=True, check=False)

    done = program("run", *TINY, "--method", "my_methods:Halved", "--set", "method.share=0.25", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["method"], summary["folder"]) == ("my_methods:Halved", "runs/digits-my_methods_Halved-1")
    (tmp_path / summary["folder"] / "summary.json").unlink()  # so that the end is computed again
    path = f"{os.environ.get('PYTHONPATH', '')}{os.pathsep}."  # a run folder alone has nothing imported from here
    again = program("resume", summary["folder"], "--workers", "1", "--json", PYTHONPATH=path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["digest"] == summary["digest"]
    wrong = program("run", "digits", "--method", "my_methods:Haved")
    assert wrong.returncode == 2
    assert "my_methods:Haved" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_run_folder_from_elsewhere_does_not_bring_code_along(tmp_path) -> None:
    """An archive may hold a run whose settings name a module, and that module beside it."""
    (tmp_path / "their_method.py").write_text("open('it-ran', 'w')")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text('[method]\nname = "their_method:Method"\n')
    for command in (["resume", "run"], ["run", "run/config.toml"]):
        words = [Path(sys.executable).with_name("rofl"), *command]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "their_method:Method" in done.stderr
        assert "PYTHONPATH=." in done.stderr
    assert not (tmp_path / "it-ran").exists()


def evil_run(folder: Path, **names: str) -> Path:
    """A run folder of somebody else, with code beside it that marks that it ran."""
    folder.mkdir(parents=True)
    (folder / "code.py").write_text("import pathlib; pathlib.Path('it-ran').touch()")
    settings = "".join(f'[{table}]\nname = "{name}"\n' for table, name in names.items())
    (folder / "config.toml").write_text(f"rounds = 1\n{settings}")
    return folder


@pytest.mark.parametrize("table", ["method", "model", "data"])
def test_nor_where_python_itself_looks_into_the_current_folder(
    tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does for `python -m rofl`, for scripts and in notebooks; a folder is a package, too."""
    monkeypatch.syspath_prepend("")
    evil_run(tmp_path / "downloads" / "run", **{table: "downloads.run.code:Thing"})
    done = rofl("resume", "downloads/run", cwd=tmp_path)
    assert done.returncode == 2
    assert "'downloads.run.code:Thing', which is not installed" in done.stderr
    assert not (tmp_path / "it-ran").exists()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # whoever says so is believed
    done = rofl("resume", "downloads/run", cwd=tmp_path)
    assert "cannot be imported (module 'downloads.run.code' has no attribute 'Thing')" in done.stderr
    assert (tmp_path / "it-ran").exists()
    for name in ("downloads", "downloads.run", "downloads.run.code"):
        sys.modules.pop(name, None)


def test_nor_does_a_process_of_its_own(tmp_path: Path) -> None:
    evil_run(tmp_path / "downloads" / "run", method="downloads.run.code:Thing")
    words = [sys.executable, "-m", "rofl", "resume", "downloads/run"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.parametrize("name", ["runpy:run_path", "pandas.io.pickle:read_pickle", "rofl.simulation.device:os.system"])
def test_a_run_folder_names_no_function_that_was_not_meant_as_a_data_set(tmp_path: Path, name: str) -> None:
    """A loader gets a path below the data folder, which may be from the same archive."""
    evil_run(tmp_path / "run", data=name)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).write_text("#!/bin/sh\ntouch it-ran\n" if "system" in name else "open('it-ran', 'w')")
    (tmp_path / "data" / name).chmod(0o755)
    done = rofl("resume", "run", "--data-dir", "data", cwd=tmp_path)
    assert done.returncode == 2
    assert f"the data set '{name}', which is not one" in done.stderr
    assert not (tmp_path / "it-ran").exists()


def test_a_saved_model_brings_no_code_along_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = rofl("run", "digits", *TINY, "--out", "downloads/run", "--workers", "0", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    record = tmp_path / "downloads" / "run" / "model.json"
    record.write_text(record.read_text().replace('"mlp"', '"downloads.code:Net"'))
    (tmp_path / "downloads" / "code.py").write_text("open('it-ran', 'w')")
    monkeypatch.syspath_prepend("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"A file names the model 'downloads.code:Net', which is not installed"):
        load_model("downloads/run")
    assert not (tmp_path / "it-ran").exists()


def test_what_others_say_is_printed_without_terminal_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """A coordinator may name a tensor so that an error at the site clears its screen."""
    print_message("ValueError: '\x1b[2J\x07' was not asked for\nthe next line")
    print_warning("\x1b[2J")
    assert capsys.readouterr().err == (
        "ValueError: '\\x1b[2J\\x07' was not asked for\nthe next line\nwarning: \\x1b[2J\n"
    )


def test_a_missing_data_set_says_where_to_put_it(tmp_path, monkeypatch) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    done = rofl("run", "mnist-lite", "--data-dir", str(empty), cwd=tmp_path)
    assert done.returncode == 2
    assert "train-images-idx3-ubyte" in done.stderr
    assert "--data-dir" in done.stderr
    assert "Traceback" not in done.stderr


def test_listings_name_everything(tmp_path) -> None:
    assert set(json.loads(rofl("methods", "--json", cwd=tmp_path).stdout)) == set(METHODS)
    assert set(json.loads(rofl("datasets", "--json", cwd=tmp_path).stdout)) == set(DATASETS)
    assert set(json.loads(rofl("presets", "--json", cwd=tmp_path).stdout)) == set(PRESETS)
    assert "rofl demo" in rofl(cwd=tmp_path).stdout


@pytest.mark.slow
def test_ctrl_c_keeps_the_checkpoint_and_resume_ends_as_if_undisturbed(tmp_path) -> None:
    settings = ["--set", "rounds=6", "--set", "data.train=120", "--set", "clients=4", "--set", "cohort=2"]
    whole = rofl("run", "digits", *settings, "--out", "whole", "--workers", "0", "--json", cwd=tmp_path)
    command = [sys.executable, "-m", "rofl", "run", "digits", *settings, "--out", "cut", "--workers", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    lines = tmp_path / "cut" / "metrics.jsonl"
    while process.poll() is None and not (lines.is_file() and lines.read_text().count("\n") >= 2):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate(timeout=60)
    assert process.returncode == 130, talk
    assert "rofl resume cut" in talk
    resumed = rofl("resume", "cut", "--workers", "0", "--json", cwd=tmp_path)
    assert json.loads(resumed.stdout)["digest"] == json.loads(whole.stdout)["digest"]


def test_run_without_a_target_says_what_to_do_and_trains_nothing(tmp_path) -> None:
    done = rofl("run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert [name for name in ("rofl run --data PATH", "rofl run digits", "rofl demo") if name not in done.stderr] == []
    assert not list(tmp_path.iterdir())
