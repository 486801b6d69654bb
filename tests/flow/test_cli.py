"""The command line as a user meets it: real folders, and real processes where these matter."""

import json
import signal
import subprocess
import sys
import time

import pytest

from rofl.cli import main
from rofl.config.presets import PRESETS
from rofl.data import DATASETS
from rofl.methods import METHODS
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


MISTAKES = {
    "preset": (["run", "digit"], "'digits'"),
    "key": (["run", "--set", "noise.rato=0.4"], "'noise.ratio'"),
    "method key": (["run", "--set", "method.lambda_cent=1"], "'method.lambda_cen'"),
    "method": (["run", "--method", "rolf"], "'rofl'"),
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
