"""What a user reads after a slip: one true sentence, with the next thing to try."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import rofl as package
from rofl.federation.issue_credentials import make_credentials
from rofl.training.audit_files import AuditFiles
from tests.flow.called import Done, rofl
from tests.flow.tiny import tiny

FEW = [word for change in ("rounds=1", "clients=2", "cohort=2", "data.train=60") for word in ("--set", change)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, a file, tables, and credentials."""
    place = tmp_path_factory.mktemp("messages")
    package.run(tiny(rounds=1), place / "run", workers=0)
    (place / "file").touch()
    _write_table(place / "numbers.csv", [f"{0.37 * row:.2f}" for row in range(60)])
    _write_table(place / "names.csv", [f"patient {row}" for row in range(60)])
    make_credentials(place / "keys", ["north"], ["localhost"])
    return place


def _write_table(path: Path, labels: list[str]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "label"])
        writer.writerows([row, row % 7, label] for row, label in enumerate(labels))


def the_error(done: Done) -> str:
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.stderr.rstrip().endswith(line)
    return line.removeprefix("error: ")


SLIPS = {
    "run digits --method fedavg": "There is no method 'fedavg': here it is called plain. Try: plain",
    "compare digits --methods FedAvg": "There is no method 'FedAvg': here it is called plain. Try: plain",
    "run digits --set noice.ratio=0.4": "There is no setting 'noice.ratio'. Try: 'noise.ratio' (there are ",
    "run digits --set metod.tau=0.4": "There is no setting 'metod.tau'. Try: 'method.tau' (there are ",
    "run digits --out file/below": "file/below cannot be written: file is a file, not a folder. Try: another --out",
    "run digits --out file": "file exists and is not an empty folder. Try: another --out",
    "report run --out file/page.html": "file/page.html cannot be written: file is a file, not a folder. Try: ",
    "export run --format safetensors --out file/x": "file/x/model.safetensors cannot be written: file is a file, ",
    "run --data numbers.csv": "The labels of numbers.csv are continuous: 60 different numbers in 60 samples. Try: ",
    "data check numbers.csv": "The labels of numbers.csv are continuous: 60 different numbers in 60 samples. Try: ",
    "run --data names.csv": "The labels of names.csv name no classes: 60 are different in 60 samples. Try: ",
    "serve --credentials nowhere": "There is no folder nowhere of credentials. Try: --credentials DIR, ",
    "serve --credentials keys": "keys holds the credentials of all parties. Try: --credentials keys/server",
    "serve --credentials keys/sites/north": "keys/sites/north has a site's credentials, not the coordinator's. Try: ",
    "serve --credentials run": "run has no credentials. Try: --credentials DIR, the folder server of rofl serve --init",
    "join --server a:1 --credentials file": "There is no folder file of credentials. Try: --credentials DIR",
    "join --server a:1 --credentials keys": "keys holds the credentials of all parties. Try: --credentials keys/",
    "join --server a:1 --credentials keys/server": "keys/server has the coordinator's credentials, not a site's. Try: ",
}


@pytest.mark.parametrize("command", SLIPS)
def test_a_slip_is_one_sentence(command: str, folder: Path) -> None:
    words = command.split()
    few = [*FEW, "--workers", "0"] if words[0] == "run" and "--data" not in words else []
    assert the_error(rofl(*words, *few, cwd=folder)).replace(f"{folder}/", "").startswith(SLIPS[command])


def test_a_finished_run_that_is_resumed_is_said_to_be_finished(folder: Path) -> None:
    done = rofl("resume", "run", cwd=folder)
    assert done.returncode == 0
    assert done.stderr == "The run in run is finished already: nothing is trained, its page is written again.\n"
    assert "test accuracy" in done.stdout
    assert "│ run/report.html" in done.stdout
    assert "│ run/suspects" in done.stdout


def test_an_audit_without_a_suspect_says_so(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(folder / "run", tmp_path / "run")
    read = AuditFiles.read_suspects
    monkeypatch.setattr(AuditFiles, "read_suspects", lambda self: [replace(row, flagged=False) for row in read(self)])
    done = rofl("audit", "run", "--workers", "0", cwd=tmp_path)
    assert done.returncode == 0
    assert (
        "No label looks wrong: the model agrees with each of the 120, or is not sure enough to object." in done.stdout
    )
    assert "most suspicious" not in done.stdout
