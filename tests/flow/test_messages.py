"""What a user reads after a slip: one true sentence, with the next thing to try."""

import ast
import csv
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import rofl as package
from rofl.audit.result import NoiseEstimate
from rofl.cli import progress
from rofl.cli.app import SETTINGS_OF_OPTIONS
from rofl.cli.tables import summary_table
from rofl.config.schema import all_keys
from rofl.federation.issue_credentials import make_credentials
from rofl.training.audit_files import AuditFiles
from rofl.training.records import RoundRecord
from rofl.training.run_dir import RunDir
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
    for name in ("cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"):  # no images: decoding them would be told
        (place / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "photos" / name).touch()
    (place / "foreign").mkdir()
    (place / "foreign" / "config.toml").write_text('[tool]\nname = "another program"\n')
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
    "run --data photos --out file": "file exists and is not an empty folder. Try: another --out",
    "run --data photos --out file/below": "file/below cannot be written: file is a file, not a folder. Try: another",
    "run --data photos --labels nowhere.csv": "There is no file nowhere.csv. Try: rofl audit RUN --labels-out FILE",
    "run --data photos --labels names.csv": "names.csv has no column 'sample'; it has a, b, label. Try: name one of",
    "run digits --rounds 3": "There is no option --rounds. Try: --set rounds=VALUE",
    "run digits --epochs 3": "There is no option --epochs. Try: --set method.epochs=VALUE",
    "predict rum photos": "There is no rum. Try: a run folder, such as run",
    "predict keys photos": "keys is not a run folder: it has no config.toml. Try: a run folder, such as run",
    "predict foreign photos": "foreign is not a run folder: its config.toml is of another program. Try: a run folder, ",
    "report foreign": "foreign is not a run folder: its config.toml is of another program. Try: a run folder, ",
    "audit run --decisions nowhere.csv": "There is no file nowhere.csv. Try: the page's CSV, or what Label Studio ",
    "audit run --decisions keys": "keys is not a folder that a labelling tool exported. Try: the page's CSV, or what ",
    "report run --out file/page.html": "file/page.html cannot be written: file is a file, not a folder. Try: ",
    "watch run --token-file keys": "keys is not a file, so it cannot hold a token. Try: another --token-file",
    "export run --format safetensors --out file/x": "file/x/model.safetensors cannot be written: file is a file, ",
    "run --data numbers.csv": "The labels of numbers.csv are continuous: 60 different numbers in 60 samples. Try: ",
    "data check numbers.csv": "The labels of numbers.csv are continuous: 60 different numbers in 60 samples. Try: ",
    "run --data names.csv": "The labels of names.csv name no classes: 60 are different in 60 samples. Try: ",
    "serve --credentials nowhere": "There is no folder nowhere of credentials. Try: --credentials DIR, ",
    "serve --credentials keys": "keys holds the credentials of all parties. Try: --credentials keys/server",
    "serve --credentials keys/sites/north": "keys/sites/north has a site's credentials, not the coordinator's. Try: ",
    "serve --credentials run": "run has no credentials. Try: --credentials DIR, the folder server of rofl serve --init",
    "serve --init file --site north": "file is a file, not a folder. Try: another --init",
    "join --server localhost --insecure --data numbers.csv": "localhost is not an address with a port. Try: --server ",
    "join --server localhost:99999 --insecure --data numbers.csv": "localhost:99999 is not an address with a port. Try",
    "join --server a:1 --credentials file": "There is no folder file of credentials. Try: --credentials DIR",
    "join --server a:1 --credentials keys": "keys holds the credentials of all parties. Try: --credentials keys/",
    "join --server a:1 --credentials keys/server": "keys/server has the coordinator's credentials, not a site's. Try: ",
}


@pytest.mark.parametrize("command", SLIPS)
def test_a_slip_is_one_sentence(command: str, folder: Path) -> None:
    words = command.split()
    few = [*FEW, "--workers", "0"] if words[0] == "run" and "--data" not in words else []
    assert the_error(rofl(*words, *few, cwd=folder)).replace(f"{folder}/", "").startswith(SLIPS[command])


def test_a_federation_of_no_site_is_refused(folder: Path) -> None:
    done = rofl("serve", "--preset", "digits", "--clients", "0", "--insecure", cwd=folder)
    assert done.returncode == 2
    assert "0 is not in the range x>=1" in done.stderr


@pytest.mark.parametrize("labels", ["", "--labels nowhere.csv"])
def test_what_can_be_refused_is_refused_before_images_are_decoded(labels: str, folder: Path) -> None:
    done = rofl("run", "--data", "photos", *labels.split(), "--out", "new" if labels else "run", cwd=folder)
    assert done.stderr == f"error: {the_error(done)}\n"


def test_an_export_of_rows_to_a_tool_for_images_is_told_before_the_work(folder: Path) -> None:
    _write_table(folder / "farm.csv", ["cow", "pig"] * 30)
    package.run(package.from_data(folder / "farm.csv", rounds=1), folder / "rows", workers=0)
    for command in ("audit rows --export cvat", "audit --model rows --data nowhere.csv --export fiftyone"):
        told = f"error: {command.split()[-1]} shows images, which these samples are not. Try: --export label-studio "
        done = rofl(*command.split(), cwd=folder)
        assert done.stderr.startswith(told)
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["predict run photos", "evaluate run", "report run"])
def test_a_file_that_cannot_be_written_is_told_before_the_work(command: str, folder: Path) -> None:
    for out, problem in (("keys", "a folder"), ("file/x", "file is a file, not a folder")):
        done = rofl(*command.split(), "--out", out, cwd=folder)
        assert problem in the_error(done) or (out == "keys" and "already exists" in the_error(done))
        assert (done.stdout, done.stderr.count("\n")) == ("", 1)


def test_a_read_only_folder_is_told_before_images_are_decoded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode, **_: mode != os.W_OK)  # root may write
    done = rofl("run", "--data", "photos", "--out", "runs/new", cwd=folder)
    assert done.stderr == f"error: runs/new cannot be written: {folder} is read-only. Try: another --out\n"


def test_options_of_other_programs_are_answered_with_settings_that_exist() -> None:
    assert set(SETTINGS_OF_OPTIONS.values()) <= set(all_keys({"method": {"name": "rofl"}}))


def test_a_misspelt_command_is_suggested_once(folder: Path) -> None:
    done = rofl("rnu", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.count("Did you mean 'run'?") == 1


def test_a_finished_run_that_is_resumed_is_said_to_be_finished(folder: Path) -> None:
    done = rofl("resume", "run", cwd=folder)
    assert done.returncode == 0
    assert done.stderr == "The run in run is already finished: nothing is trained, and its page is written again.\n"
    assert "test accuracy" in done.stdout
    assert "│ run/report.html" in done.stdout
    assert "│ run/suspects" in done.stdout


def test_the_time_left_is_told_once_the_pace_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The start of processes takes seconds: multiplied by the rounds it would be minutes."""
    for first, told in ((9.0, ""), (90.0, ", about 58 min left")):
        clock = iter((0.0, first, first + 0.5))
        monkeypatch.setattr("rofl.cli.progress.time.monotonic", lambda clock=clock: next(clock))
        listener, experiment = progress.ProgressListener(), tiny(rounds=40)
        listener.begin(experiment)
        for index in (1, 2):
            listener(experiment, RoundRecord(round=index, accuracy=50.0))
        _, one, two = capsys.readouterr().err.splitlines()
        assert one.endswith(f"round 1/40, accuracy 50.0 %{told}")
        assert two.endswith("round 2/40, accuracy 50.0 %, about 19 s left")


def test_a_client_that_is_left_out_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listener, record = progress.ProgressListener(), RoundRecord(round=1, dropped={"1": "it raised", "2": "it raised"})
    RunDir(tmp_path).write_client_names(["north", "south\x1b[2J"])
    listener.begin(tiny(rounds=4), tmp_path)
    listener(tiny(rounds=4), record)
    _, south, other, _ = capsys.readouterr().err.splitlines()
    assert south == r"warning: south\x1b[2J was left out of round 1: it raised"
    assert other == "warning: client 2 was left out of round 1: it raised"


def summary_rows(run: package.Run, **changes: object) -> list[tuple[str, str]]:
    table = summary_table(replace(run, summary=run.summary.model_copy(update=changes)))
    names, values = (list(column.cells) for column in table.columns)
    return list(zip(map(str, names), map(str, values), strict=True))


def test_the_summary_begins_with_the_saved_model_where_it_is_the_best(folder: Path) -> None:
    run = package.resume(folder / "run")
    name, value = summary_rows(run)[0]
    assert (name, value.split(", ")[1]) == ("test accuracy", "after one round")
    best = {"selected": "best", "selected_round": 3, "model_accuracy": 71.25}
    assert summary_rows(run, **best)[0] == (
        "saved model",
        "of round 3, 71.25 %: the best agreement with held-out labels",
    )


def test_the_summary_bounds_the_share_of_wrong_labels_where_the_truth_is_not_known(folder: Path) -> None:
    run = package.resume(folder / "run")
    assert "labels that are wrong" not in dict(summary_rows(run))
    unknown = {"noise": run.summary.noise.model_copy(update={"achieved": None})}
    estimated = NoiseEstimate(0.08, {"a": 0.02, "b": 0.15}, [], {"a": [0.0, 0.326], "b": [0.06, 0.484]})
    rows = dict(summary_rows(run, **unknown, estimated=estimated))
    assert rows["labels that look wrong"] == "8.0 %; 2.0 to 15.0 % at single clients"
    assert rows["labels that are wrong"] == "not known; up to 33 % at a, 6 to 49 % at b"  # of earlier versions
    assert dict(summary_rows(run, **unknown, estimated=None))["labels that are wrong"] == "not known"
    one = replace(estimated, intervals={"a": [0.1, 0.3]}, expected_ratio=0.2, expected_unflagged=0.001)
    rows = dict(summary_rows(run, **unknown, estimated=one))
    assert rows["labels that are wrong"] == "about 20.0 %; 10 to 30 %"
    assert "wrong, not flagged" not in rows


def test_the_summary_tells_of_wrong_labels_that_are_not_flagged(folder: Path) -> None:
    """A weak model flags few labels, though its scores say that many are wrong."""
    run = package.resume(folder / "run")
    assert run.summary.estimated is not None
    unknown = run.summary.noise.model_copy(update={"achieved": None})
    estimated = replace(run.summary.estimated, ratio=0.05, expected_ratio=0.2, expected_unflagged=0.16)
    rows = dict(summary_rows(run, noise=unknown, estimated=estimated))
    assert rows["labels that are wrong"].startswith("about 20.0 %; ")
    assert rows["wrong, not flagged"].startswith("about 16.0 %, by the scores: the lists go on")


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


def _docstrings(tree: ast.Module) -> set[int]:
    """The identities of all docstring nodes, and of the texts below attributes."""
    bodies = [node.body for node in ast.walk(tree) if hasattr(node, "body") and isinstance(node.body, list)]
    alone = [one.value for body in bodies for one in body if isinstance(one, ast.Expr)]
    return {id(value) for value in alone}


def test_no_message_names_a_page_that_is_not_installed() -> None:
    """The wheel has no folder docs: messages, help texts and files for users must make sense without it."""
    source = Path(package.__file__).parent
    texts = 0
    for path in source.rglob("*.py"):
        tree = ast.parse(path.read_text())
        skipped = _docstrings(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
                texts += 1
                assert "docs/" not in node.value, f"{path.relative_to(source)}:{node.lineno}"
    assert texts > 5000
    for path in (*source.rglob("*.j2"), *source.rglob("*.js"), *source.rglob("*.toml")):
        assert "docs/" not in path.read_text(), path.relative_to(source)
