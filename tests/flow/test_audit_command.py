"""`rofl audit`: judge again, correct, train again; and judge new data."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import rofl
from rofl.audit.held_out_noise import estimate_noise, judge_clients
from rofl.audit.noise_estimation import interval_text
from rofl.audit.suspect_list import SuspectRow
from rofl.cli import main
from rofl.cli.resolve import ExperimentOptions, resolve_experiment
from rofl.data.federated import load_federated
from rofl.data.spreadsheet import unescape_cell
from rofl.errors import Interrupted
from rofl.report import write_report
from rofl.training import label_audit
from rofl.training.run_dir import RunDir
from tests.data.user import places
from tests.flow.audited import CLASSES, CLIENTS, SETS, digits, files, own, write_photos
from tests.flow.tiny import outcome

FIGURES = {"detection", "audit", "estimated", "classes", "shape"}
AGAIN = [*(word for change in (*SETS, "method.t_pl=20") for word in ("--set", change)), "--workers", "0", "--json"]
OWN = ("rounds=1", "model.name=mlp", "model.width=0.25", "method.epochs=1")
OWN_AGAIN = [*(word for change in OWN for word in ("--set", change)), "--workers", "0", "--json"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where all runs of this file lie; nobody changes them."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("home")
        patch.setenv("ROFL_CACHE", str(place / "cache"))
        patch.setattr("os.fsync", lambda _: None)
        yield place


@pytest.fixture(autouse=True)
def _here(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")  # tables in one line
    monkeypatch.setattr("rofl.report.write_report", lambda _, out=None, *__: out)  # the page has its own tests


@pytest.fixture(scope="module")
def first(home: Path) -> Path:
    return rofl.run(digits(), home / "first", workers=0).folder


@pytest.fixture(scope="module")
def photos(home: Path) -> Path:
    write_photos(home / "photos")
    return home / "photos"


@pytest.fixture(scope="module")
def learnt(home: Path, photos: Path) -> Path:
    return rofl.run(own(photos), home / "learnt", workers=0).folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `rofl` here; returns its exit code, stdout and stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rofl", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, " ".join(said.err.split())

    return call


@pytest.fixture
def audit(command: Any) -> Any:
    """Audit here, which works; returns stdout and stderr."""

    def call(*arguments: object) -> tuple[str, str]:
        code, out, err = command("audit", *arguments, "--workers", "0")
        assert code == 0, err
        return out, err

    return call


@pytest.fixture
def refused(command: Any) -> Any:
    """Audit here, which ends in one sentence; returns it."""

    def call(*arguments: object) -> str:
        code, out, err = command("audit", *arguments, "--workers", "0")
        assert (code, out) == (2, "")
        sentence = re.sub(r"^decoding \d+ images? ", "", err)
        assert sentence.startswith("error: ")
        assert "Traceback" not in err
        return sentence

    return call


@pytest.fixture
def nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed")

    monkeypatch.setattr(label_audit, "start_simulation", refuse)


def copied(run: Path, name: str = "run") -> Path:
    shutil.copytree(run, name)
    return Path(name)


def table(path: Path | str) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return [{name: unescape_cell(cell) for name, cell in row.items()} for row in csv.DictReader(file)]


def listed(folder: Path | str) -> dict[str, SuspectRow]:
    """Sample -> its line in the lists."""
    return {row.sample: row for row in RunDir(Path(folder)).audit.read_suspects()}


def page(path: Path | str, *decisions: tuple[object, ...]) -> str:
    """What the page saves: client, sample, given, decision, label."""
    places.write_csv(Path(path), [("client", "sample", "given", "decision", "label"), *decisions])
    return str(path)


# --- a run, judged again ---


@pytest.mark.parametrize("kind", ["rofl", "plain", "joint", "own"])
def test_lists_are_computed_again_byte_for_byte_and_nothing_else_changes(
    kind: str, home: Path, request: pytest.FixtureRequest, audit: Any
) -> None:
    """Without centroids too, with clients' states, and for own data."""
    if kind in ("rofl", "own"):
        run = copied(request.getfixturevalue({"rofl": "first", "own": "learnt"}[kind]))
    else:
        run = rofl.run(digits(kind, rounds=2), "run", workers=0).folder
    before = files(run)
    assert any(name.startswith("states/") for name in before) == (
        kind in ("joint", "own")
    )  # their methods keep a state
    shutil.rmtree(run / "suspects")
    (run / "features.safetensors").unlink()
    audit(run)
    assert files(run) == before
    audit(run, "--json")  # where they lie already
    assert files(run) == before
    assert [path.name for path in Path().iterdir()] == ["run"]


def test_what_is_printed_is_what_was_found(first: Path, audit: Any) -> None:
    out, err = audit(copied(first), "--show", "3")
    rows = RunDir(Path("run")).audit.read_suspects()
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    clients, suspects = lines[:5], lines[5:]
    assert clients[-1][:3] == ["all", "300", str(sum(row.flagged for row in rows))]
    bounds = RunDir(Path("run")).read_summary().estimated.intervals
    for name, samples, flagged, share, expected, interval in clients:
        own_rows = [row for row in rows if name in ("all", row.client)]
        count = sum(row.flagged for row in own_rows)
        assert (samples, flagged, share) == (str(len(own_rows)), str(count), f"{100 * count / len(own_rows):.1f} %")
        unsure = 3 * sum(row.score for row in own_rows if not row.flagged) >= len(own_rows) - count
        assert (expected == "unsure") == unsure
        assert unsure or float(expected) == pytest.approx(sum(row.score for row in own_rows), abs=0.51)
        assert interval == (interval_text(bounds[name]) if name != "all" else "")
    shares = [float(share.rstrip(" %")) for *_, share, _, _ in clients[:-1]]
    left = sum(row.score for row in rows if not row.flagged)
    unsure = 3 * left >= sum(not row.flagged for row in rows)
    assert (f"About {left:.0f} of the labels that are not flagged" in out) == (left >= 1 and not unsure)
    assert shares == sorted(shares, reverse=True)
    assert suspects == [[row.client, row.sample, row.given, row.suggested, f"{row.score:.3f}"] for row in rows[:3]]
    found = RunDir(first).read_summary().audit
    assert f"by the truth: precision {found.precision:.3f}, recall {found.recall:.3f}, average precision" in out
    assert f"right suggestions {found.suggestion_accuracy:.3f}" in out
    assert "by people" not in out
    assert err == "Each client's own list: run/suspects"
    assert "most suspicious" not in audit("run", "--show", "0")[0]
    every = audit("run", "--show", "300")[0].partition("most suspicious")[2]
    assert every.count("\n│") == sum(row.flagged for row in rows)  # the others' suggestion is the given label


def test_many_clients_are_counted_though_not_listed(audit: Any) -> None:
    rofl.run(digits("plain", rounds=1, clients=23, cohort=1, data__train=69), "run", workers=0)
    out, _ = audit("run", "--show", "0")
    lines = [line for line in out.splitlines() if line.startswith("│")]
    assert len(lines) == 22
    assert "and 3 more" in lines[20]
    assert lines[21].split()[1:4] == ["all", "│", "69"]


UNFIT: dict[str, tuple[Callable[[Path], object], str]] = {
    "no run": (shutil.rmtree, "There is no run. Try: "),
    "unfinished": (lambda run: (run / "summary.json").unlink(), "run holds no finished run. Try: rofl resume run"),
    "damaged summary": (lambda run: (run / "summary.json").write_text("{"), "run/summary.json is damaged"),
    "no checkpoint": (
        lambda run: (run / "checkpoint.safetensors").unlink(),
        "run has no checkpoint, so its model",
    ),
    "damaged checkpoint": (lambda run: (run / "checkpoint.safetensors").write_bytes(b"no"), "safetensors is damaged"),
    "damaged settings": (lambda run: (run / "config.toml").write_text("rounds = "), "cannot be read as TOML"),
}


@pytest.mark.parametrize("trouble", UNFIT)
def test_a_run_that_cannot_be_judged_is_one_sentence(trouble: str, first: Path, refused: Any) -> None:
    run = copied(first)
    spoil, sentence = UNFIT[trouble]
    spoil(run)
    before = files(run)
    assert sentence in refused(run, "--labels-out", "new.csv")
    assert files(run) == before
    if trouble != "no run":  # as a model it serves no better
        places.write_folder(Path("data"), classes="012")
        assert sentence in refused("--model", run, "--data", "data", "--out", "out")
    assert not Path("out").exists()
    assert not Path("new.csv").exists()


def test_images_are_decoded_where_that_was_not_done_before(
    learnt: Path, audit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROFL_CACHE", "fresh")
    assert audit(copied(learnt))[1].startswith("decoding 72 images ")
    assert "decoding" not in audit("run")[1]


def test_data_that_changed_is_noticed_and_the_lists_stay(photos: Path, learnt: Path, refused: Any) -> None:
    shutil.copytree(photos, "photos")
    run = rofl.run(own(Path("photos"), rounds=1), "run", workers=0).folder
    before = files(run)
    places.save(Path("photos/site 2/cat/new.png"), places.picture(0, 4000))
    assert "is not what it was when these settings were chosen" in refused(run)
    shutil.rmtree("photos")
    assert "There is no" in refused(run)
    assert files(run) == before


def test_where_nothing_is_flagged_there_is_nothing_to_count(audit: Any) -> None:
    rofl.run(digits("plain", rounds=1, data__train=20, method__lr=1e-9, noise__ratio=0.0), "run", workers=0)
    assert "precision -, recall -, average precision -, right suggestions -" in audit("run")[0]


# --- labels to train with again ---


def test_corrected_labels_are_trained_with_by_the_same_clients(first: Path, audit: Any, command: Any) -> None:
    _, err = audit(copied(first), "--labels-out", "deep/new.csv", "--min-confidence", "0")
    rows, lines = table("deep/new.csv"), listed(first)
    assert list(rows[0]) == ["client", "sample", "given", "label"]
    assert len(rows) == 300
    for row in rows:
        line = lines[row["sample"]]
        better = line.suggested if line.flagged else line.given
        assert (row["client"], row["given"], row["label"]) == (line.client, line.given, better)
    changed = sum(row["given"] != row["label"] for row in rows)
    assert changed > 20
    assert err.startswith(f"{changed} labels are changed in deep/new.csv")

    code, out, err = command("run", "digits", *AGAIN, "--labels", "deep/new.csv", "--out", "second")
    assert code == 0, err
    after, summary = listed("second"), json.loads(out)
    assert {row["sample"]: (row["client"], row["label"]) for row in rows} == {
        sample: (line.client, line.given) for sample, line in after.items()
    }
    truth = load_federated(digits().split).images.train_labels.tolist()
    wrong = sum(int(row["label"]) != truth[int(row["sample"])] for row in rows)
    assert summary["noise"]["achieved"] == pytest.approx(wrong / 300)
    assert summary["noise"]["achieved"] < RunDir(first).read_summary().noise.achieved
    settings = RunDir(Path("second")).read_experiment()
    assert settings.method["tau"] == "auto"
    assert Path(settings.data.labels) == Path("deep/new.csv").absolute()

    code, _, err = command(
        "run", "digits", *AGAIN, "--labels", "deep/new.csv", "--set", "method.tau=0.3", "--seed", "1"
    )
    assert (code, "the data it was written for" in err) == (2, True)  # another seed, other wrong labels
    assert not Path("runs").exists()


def test_a_run_with_labels_goes_on_from_another_folder(
    first: Path, audit: Any, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit(copied(first), "--labels-out", "new.csv")
    chosen = resolve_experiment(ExperimentOptions("digits", [*SETS, "rounds=3"], labels=Path("new.csv")))
    rofl.run(chosen, "whole", workers=0)

    def stop(_: object, entry: Mapping[str, Any]) -> None:
        if entry.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        rofl.run(chosen, "cut", workers=0, listener=stop)
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    code, _, err = command("resume", "../cut", "--workers", "0", "--json")
    assert code == 0, err
    assert outcome(Path("../cut")) == outcome(Path("../whole"))
    audit("../cut", "--labels-out", "third.csv")  # held against the data, as the first was
    again = load_federated(resolve_experiment(ExperimentOptions("digits", SETS, labels=Path("third.csv"))).split)
    assert {str(row): str(label) for row, label in enumerate(again.labels.tolist())} == {
        row["sample"]: row["label"] for row in table("third.csv")
    }
    Path("../new.csv").unlink()
    code, out, err = command("audit", "../cut", "--workers", "0")
    assert (code, out) == (2, "")
    assert f"There is no file {Path('../new.csv').resolve()}. Try: rofl audit RUN --labels-out FILE" in err


def test_a_file_that_is_there_stays_and_nothing_is_computed(
    first: Path, refused: Any, nothing_is_computed: None
) -> None:
    Path("new.csv").write_text("thesis")
    said = "error: new.csv already exists. Try: another --labels-out"
    assert refused(first, "--labels-out", "new.csv") == said
    assert refused("--model", first, "--data", "x", "--out", "out", "--labels-out", "new.csv") == said
    assert files(Path()) == {"new.csv": b"thesis"}


def test_a_file_that_cannot_be_written_is_told(first: Path, refused: Any) -> None:
    Path("thesis").write_text("")
    assert "thesis/new.csv cannot be written" in refused(copied(first), "--labels-out", "thesis/new.csv")


def test_own_data_is_corrected_and_trained_with(
    photos: Path, learnt: Path, audit: Any, command: Any, request: pytest.FixtureRequest
) -> None:
    truth = {path.relative_to(photos).as_posix(): CLASSES[int(path.stem[0])] for path in photos.rglob("*.png")}
    out, _ = audit(copied(learnt), "--labels-out", "new.csv", "--min-confidence", "0.5")
    assert "by the truth" not in out
    rows = table("new.csv")
    assert {row["sample"] for row in rows} == set(listed(learnt))
    assert {row["client"] for row in rows} == set(CLIENTS)
    assert all(row["sample"].split("/")[:2] == [row["client"], row["given"]] for row in rows)
    assert sum(row["given"] != truth[row["sample"]] for row in rows) == 9
    assert all(row["label"] == truth[row["sample"]] for row in rows)  # it found them all
    code, _, err = command("run", "--data", photos, *OWN_AGAIN, "--labels", "new.csv", "--out", "second")
    assert code == 0, err
    after = listed("second")
    assert {row["sample"]: (row["client"], row["label"]) for row in rows} == {
        sample: (line.client, line.given) for sample, line in after.items()
    }
    assert RunDir(Path("second")).read_experiment().method["tau"] == "auto"
    audit("second", "--labels-out", "third.csv")
    assert all(row["given"] == row["sample"].split("/")[1] for row in table("third.csv"))


def test_labels_whose_suggestion_is_not_probable_enough_stay(learnt: Path, audit: Any) -> None:
    flagged = {sample: line for sample, line in listed(learnt).items() if line.flagged}
    least = f"{sorted(line.score for line in flagged.values())[len(flagged) // 2]:.3f}"
    _, err = audit(copied(learnt), "--labels-out", "sure.csv", "--min-confidence", least)
    sure = {row["sample"] for row in table("sure.csv") if row["label"] != row["given"]}
    assert sure < set(flagged)
    assert all(flagged[sample].score >= float(least) for sample in sure)  # a suggestion gets no more than that
    left = f"{len(flagged) - len(sure)} labels that look wrong stay as given: no suggestion is right with"
    assert f"{left} a probability of {float(least):g} or more (--min-confidence)" in err
    before, after = map(int, re.findall(r"of \d+: (\d+) before, (\d+) after", err)[0])
    assert after <= before


LABEL_MISTAKES = {
    "sample": (lambda rows: rows[0].update(sample="nobody"), "not in the training part: 1, the first is 'nobody'"),
    "class": (lambda rows: rows[0].update(label="10"), "There is no class '10'"),
    "given": (lambda rows: rows[3].update(given=str((int(rows[3]["given"]) + 1) % 10)), "Row 4 of"),
    "twice": (lambda rows: rows.append(rows[0]), "twice. Try: one row for each"),
    "column": (lambda rows: [row.pop("label") for row in rows], "has no column 'label'"),
    "empty": (lambda rows: rows.clear(), "has no rows"),
}


@pytest.mark.parametrize("mistake", LABEL_MISTAKES)
def test_a_mistake_in_a_file_of_labels_is_one_sentence(mistake: str, command: Any) -> None:
    federated = load_federated(digits().split)
    label_audit.write_corrected_labels(Path("new.csv"), federated, federated.labels)
    rows = table("new.csv")
    change, sentence = LABEL_MISTAKES[mistake]
    change(rows)
    places.write_csv(Path("bad.csv"), [list(rows[0]) if rows else ["sample", "label"], *(row.values() for row in rows)])
    code, out, err = command("run", "digits", *AGAIN, "--labels", "bad.csv")
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err
    assert not Path("runs").exists()


def test_a_spreadsheets_labels_are_taken_and_the_others_stay(command: Any) -> None:
    federated = load_federated(digits().split)
    given, label = int(federated.labels[7]), (int(federated.labels[7]) + 1) % 10
    Path("new.csv").write_text(f"\ufeffclient;sample;given;label\r\n;7;{given};{label}\r\n", newline="")
    code, _, err = command("run", "digits", *AGAIN, "--set", "rounds=1", "--labels", "new.csv", "--out", "run")
    assert code == 0, err
    expected = {str(row): str(value) for row, value in enumerate(federated.labels.tolist())} | {"7": str(label)}
    assert {sample: line.given for sample, line in listed("run").items()} == expected


# --- decisions ---


def test_decisions_are_kept_and_decide(learnt: Path, audit: Any) -> None:
    run, lines = copied(learnt), listed(learnt)
    flagged = [line for line in lines.values() if line.flagged]
    calm = next(line for line in lines.values() if not line.flagged)
    third = {
        line.sample: next(name for name in CLASSES if name not in (line.given, line.suggested)) for line in flagged
    }

    def said(line: dict[str, Any], decision: str, label: str) -> tuple[str, ...]:
        return line.client, line.sample, line.given, decision, label

    stays, other = flagged[0], flagged[1]
    moved = next(name for name in CLASSES if name != calm.given)
    one = page("one.csv", said(stays, "wrong", stays.suggested), said(other, "wrong", third[other.sample]))
    two = page("two.csv", said(stays, "right", stays.given), said(calm, "wrong", moved))
    out, err = audit(run, "--decisions", one, "--decisions", two, "--labels-out", "all.csv", "--min-confidence", "0")
    assert "by people: 2 labels wrong, 1 right" in out
    assert len(table("run/decisions.csv")) == 3
    changed = {row["sample"]: row["label"] for row in table("all.csv") if row["label"] != row["given"]}
    expected = {line.sample: line.suggested for line in flagged[2:]}
    expected |= {other.sample: third[other.sample], calm.sample: moved}
    assert changed == expected
    assert f"{len(expected)} labels are changed" in err

    out, err = audit(run, "--decided-only", "--labels-out", "decided.csv", "--json")  # they are known from now on
    assert "2 labels are changed in decided.csv" in err
    assert "stay as given: nobody decided about them" in err
    assert json.loads(out)["decisions"] == {"wrong": 2, "right": 1}
    changed = {row["sample"]: row["label"] for row in table("decided.csv") if row["label"] != row["given"]}
    assert changed == {sample: expected[sample] for sample in (other.sample, calm.sample)}


def test_decisions_about_other_labels_are_refused(learnt: Path, refused: Any) -> None:
    run, line = copied(learnt), next(iter(listed(learnt).values()))
    good = page("good.csv", (line.client, line.sample, line.given, "right", line.given))
    other = next(name for name in CLASSES if name != line.given)
    said = refused(run, "--decisions", page("page.csv", (line.client, line.sample, other, "right", other)))
    assert f"is about the label '{other}', and the sample is labelled '{line.given}'" in said
    assert not Path("run/decisions.csv").exists()
    shutil.copy(good, "run/decisions.csv")
    bad = page(
        "bad.csv",
        (line.client, line.sample, line.given, "wrong", other),
        ("x", "nobody", "cat", "right", "cat"),
    )
    said = refused(run, "--decisions", good, "--decisions", bad, "--labels-out", "never.csv")
    assert "bad.csv names samples that are not in the training part: 1, the first is 'nobody'" in said
    said = refused(run, "--decisions", "absent.csv", "--labels-out", "never.csv")
    assert "There is no file absent.csv. Try: the page's CSV, or what Label Studio" in said
    assert Path("run/decisions.csv").read_bytes() == Path("good.csv").read_bytes()
    assert not Path("never.csv").exists()


# --- new data ---


def test_new_data_is_judged_by_a_model(learnt: Path, audit: Any) -> None:
    truth = write_photos(Path("new"), each=4)
    places.save(Path("new/site 2/cat/late.png"), places.picture(0, 5000))
    (Path("new") / "site 10" / "dog" / "[red]bad.png").write_bytes(b"no")
    before = files(learnt)
    out, err = audit(
        "--model", learnt, "--data", "new", "--out", "deep/out", "--labels-out", "new.csv", "--min-confidence", "0"
    )
    assert "decoding" in err
    assert files(learnt) == before
    lists = listed("deep/out")
    assert set(lists) == {*truth, "site 2/cat/late.png"}  # all, none is held out
    assert {line.client for line in lists.values()} == set(CLIENTS)
    assert sorted(path.stem for path in Path("deep/out/suspects").iterdir()) == ["_1_1", "_red_x", "site 10", "site 2"]
    assert Path("deep/out/left_out.txt").read_text() == "site 10/dog/[red]bad.png: not an image\n"
    found = {sample: line.suggested for sample, line in lists.items() if line.flagged}
    assert found == {sample: label for sample, label in truth.items() if sample.split("/")[1] != label}
    assert {row["sample"]: row["label"] for row in table("new.csv")} == {**truth, "site 2/cat/late.png": "cat"}
    kept = RunDir(Path("deep/out")).audit.read_features()
    assert kept is not None
    assert sorted(kept.rows.tolist()) == list(range(len(lists)))
    for name in (*CLIENTS, *CLASSES):
        assert name in out
    said = sorted(path.name for path in Path("deep/out").iterdir())
    assert said == [
        ".lock",
        "audit.json",
        "features.safetensors",
        "left_out.txt",
        "suspects",
    ]  # and the page, which is not written here


KILLED_AT = """
import os, signal, sys
from pathlib import Path

last = sys.argv.pop(1)

def kill_before(event, arguments):
    if event == "os.rename" and Path(os.fsdecode(arguments[1])).name == last:  # atomic_write's
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill_before)
from rofl.cli import main
main()
"""


@pytest.mark.parametrize("last", ["unfinished", "site 2.csv", "features.safetensors", "audit.json"])
def test_the_same_command_repeats_an_audit_that_was_killed_while_it_wrote(
    last: str, learnt: Path, audit: Any, refused: Any
) -> None:
    write_photos(Path("new"), each=2)
    arguments = ["--model", learnt, "--data", "new", "--out", "out"]
    killed = ["audit", *map(str, arguments), "--workers", "0"]
    environment = {**os.environ, "PYTHONPATH": str(Path(rofl.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", KILLED_AT, last, *killed], env=environment, timeout=300)
    assert done.returncode == -signal.SIGKILL
    assert not Path("out/audit.json").exists()
    Path("out/suspects").mkdir(exist_ok=True)
    Path("out/suspects/gone.csv").write_text("a client that the data had at the first attempt")
    assert "The audit that wrote out was interrupted. Try: rofl audit --model RUN" in refused("out")
    audit(*arguments)
    again = files(Path("out"))
    audit("--model", learnt, "--data", "new", "--out", "fresh")
    assert again == files(Path("fresh"))
    assert "out already holds an audit. Try: rofl audit out repeats it" in refused(*arguments)
    assert files(Path("out")) == again


def test_a_folder_with_other_files_is_not_taken_for_an_interrupted_audit(learnt: Path, refused: Any) -> None:
    write_photos(Path("new"), each=1)
    Path("out").mkdir()
    for name in ("unfinished", "thesis.txt"):
        Path("out", name).write_text("years of work")
    before = files(Path("out"))
    assert "out exists and is not an empty folder." in refused("--model", learnt, "--data", "new", "--out", "out")
    assert files(Path("out")) == before


def test_a_folder_named_test_is_judged_too(learnt: Path, audit: Any) -> None:
    for kind, label in enumerate(CLASSES):
        places.save(Path("new") / label / "1.png", places.picture(kind, 900))
        places.save(Path("new") / "test" / label / "1.png", places.picture(kind, 901))
    audit("--model", learnt, "--data", "new", "--out", "out")
    lists = listed("out")
    assert set(lists) == {f"{part}{label}/1.png" for part in ("", "test/") for label in CLASSES}
    assert {line.client for line in lists.values()} == {"new"}  # nobody is named, so that it is one


def test_a_model_that_is_often_wrong_itself_is_told_on_the_terminal_and_on_the_page(learnt: Path, audit: Any) -> None:
    write_photos(Path("new"), each=4)
    good, weak = copied(learnt), Path(shutil.copytree(learnt, "weak"))
    for run, accuracy in ((good, 99.0), (weak, 30.0)):
        path = run / "summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"model_accuracy": accuracy}))
    said = "the model disagrees with 70.0 % of the test labels of its own run, and flags "
    assert "warning" not in audit("--model", good, "--data", "new", "--out", "out")[1]
    assert f"warning: {said}" in audit("--model", weak, "--data", "new", "--out", "doubtful")[1]
    assert f"warning: {said}" in audit("doubtful")[1]
    assert "own mistakes, unless many of those test labels are wrong, too" in audit("doubtful")[1]
    assert said not in write_report(["out"]).read_text()
    assert said in write_report(["doubtful"]).read_text()


def test_a_test_part_beside_named_clients_is_judged_too(learnt: Path, audit: Any) -> None:
    truth = write_photos(Path("new"), each=2)
    places.save(Path("new/test/cat/1.png"), places.picture(0, 900))
    audit("--model", learnt, "--data", "new", "--out", "out")
    assert set(listed("out")) == {*truth, "test/cat/1.png"}
    assert listed("out")["test/cat/1.png"].client == "test part"


def test_one_class_only_a_list_and_arrays_are_judged(learnt: Path, audit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        places.save(Path(f"new.v2/cat/{number}.png"), places.picture(0 if number else 1, 700 + number))
    places.write_csv(Path("new.v2/list.csv"), [("path", "label"), *((f"cat/{n}.png", "cat") for n in range(4))])
    places.write_arrays(
        Path("new.v2/a.npz"),
        images=np.stack([places.picture(0 if n else 1, 700 + n) for n in range(4)]),
        labels=["cat"] * 4,
        clients=None,
    )
    for data, client in (("new.v2", "new.v2"), ("new.v2/list.csv", "list"), ("new.v2/a.npz", "a")):
        out, _ = audit("--model", learnt, "--data", data, "--out", f"out {client}", "--json")
        assert json.loads(out)["estimated"]["clients"] == {client: 0.25}
        assert [line.suggested for line in RunDir(Path(f"out {client}")).audit.read_suspects()] == ["dog", *["cat"] * 3]
    monkeypatch.chdir("new.v2")
    out, _ = audit("--model", learnt, "--data", ".", "--json")
    found = json.loads(out)
    assert (found["estimated"]["clients"], found["folder"]) == ({"new.v2": 0.25}, "runs/audit-new.v2-1")
    assert Path("runs/audit-new.v2-1/suspects/new.v2.csv").is_file()


def test_a_folder_of_its_own_is_found_where_none_is_named(learnt: Path, audit: Any) -> None:
    write_photos(Path("new"), each=1)
    for number in (1, 2):
        out, err = audit("--model", learnt, "--data", "new", "--json")
        assert json.loads(out)["folder"] == f"runs/audit-new-{number}"
        assert Path(f"runs/audit-new-{number}/suspects/site 2.csv").is_file()
    assert "Each client's own list" not in err


def test_a_model_of_a_built_in_set_judges_pictures(first: Path, audit: Any) -> None:
    """The run's own images, as files: the same predictions, and the noise that fits them as new data."""
    federated = load_federated(RunDir(first).read_experiment().split)
    for row, (pixels, label) in enumerate(zip(federated.images.train, federated.labels.tolist(), strict=True)):
        path = Path("pictures") / str(label) / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[0].numpy()).save(path)
    audit("--model", first, "--data", "pictures", "--out", "out")
    labels, probabilities = federated.labels, torch.as_tensor(rofl.load(first).predict_proba(federated.images.train[:]))
    noise = estimate_noise(labels, probabilities, (labels, probabilities))
    expected = judge_clients(labels, probabilities, noise, [torch.arange(len(labels))])
    found = {int(Path(sample).stem): line for sample, line in listed("out").items()}
    assert sorted(found) == list(range(len(labels)))
    for row, line in found.items():
        assert (line.given, line.suggested) == (str(int(labels[row])), str(int(expected.suggested[row])))
        assert float(line.score) == pytest.approx(float(expected.score[row]), abs=1e-4)


NEW_MISTAKES = {
    "absent": ("nowhere", "out", "There is no", "a folder of images"),
    "class": ("strange", "out", "The model does not know these classes of", "cow. Try: [b]ox, cat, dog"),
    "table": ("t.csv", "out", "is a table, and the model was not trained on one", ""),
    "unreadable": ("broken", "out", "There is no sample to audit in", "Try: rofl data check"),
    "full folder": ("new", "new", "new exists and is not an empty folder", "Try: another --out"),
    "a file": ("new", "t.csv", "t.csv exists and is not an empty folder", "Try: another --out"),
}


@pytest.mark.parametrize("mistake", NEW_MISTAKES)
def test_new_data_that_cannot_be_judged_is_one_sentence(
    mistake: str, learnt: Path, refused: Any, nothing_is_computed: None
) -> None:
    write_photos(Path("new"), each=1)
    places.save(Path("strange/cow/1.png"), places.picture(0, 1))
    places.save(Path("strange/cat/1.png"), places.picture(0, 1))
    places.write_table(Path("t.csv"))
    Path("broken/cat").mkdir(parents=True)
    Path("broken/cat/1.png").write_bytes(b"no")
    before = files(Path())
    data, out, sentence, hint = NEW_MISTAKES[mistake]
    said = refused("--model", learnt, "--data", data, "--out", out)
    assert sentence in said
    assert hint in said
    assert files(Path()) == before


def test_pictures_of_another_size_and_in_colours_are_made_as_the_model_knows_them(learnt: Path, audit: Any) -> None:
    for kind, label in enumerate(CLASSES):
        for number in range(3):
            pixels = places.picture(kind, 800 + number)
            large = np.repeat(np.repeat(pixels, 3, axis=0), 3, axis=1)
            places.save(Path(f"small/{label}/{number}.png"), pixels)
            places.save(Path(f"large/{label}/{number}.png"), np.stack([large] * 3, axis=2))
    for size in ("small", "large"):
        out, _ = audit("--model", learnt, "--data", size, "--out", f"out {size}", "--json")
        assert json.loads(out)["shape"] == [1, 8, 8]
    one, other = (listed(f"out {size}") for size in ("small", "large"))
    for sample, line in one.items():
        assert float(other[sample].score) == pytest.approx(float(line.score), abs=0.05)
        assert other[sample].suggested == line.suggested


def test_the_model_of_one_owner_judges_the_data_of_many(photos: Path, audit: Any) -> None:
    run = rofl.run(own(photos, rounds=1, setting="centralized", data__partition="iid"), "run", workers=0).folder
    audit("--model", run, "--data", photos, "--out", "out")
    assert {line.client for line in listed("out").values()} == set(CLIENTS)


def test_an_empty_folder_is_filled(learnt: Path, audit: Any) -> None:
    write_photos(Path("new"), each=1)
    Path("out").mkdir()
    audit("--model", learnt, "--data", "new", "--out", "out")
    assert len(listed("out")) == 12


def test_a_model_of_a_table_judges_no_images(refused: Any) -> None:
    write_photos(Path("new"), each=1)
    places.write_table(Path("t.csv"))
    run = rofl.run(rofl.from_data("t.csv", rounds=1), "table", workers=0).folder
    said = refused("--model", run, "--data", "new", "--out", "out")
    assert "has images, and the model was trained on a table" in said
    assert not Path("out").exists()


def test_a_new_table_is_judged_by_the_model_of_another(audit: Any, refused: Any) -> None:
    places.write_table(Path("t.csv"), rows=200)
    run = rofl.run(rofl.from_data("t.csv", rounds=8, noise__ratio=0.0), "table", workers=0).folder
    head = ("id", "height", "label", "colour", "weight")  # in another order, and without clients
    right = [(f"cow {n}", n % 7, "cow", "red", 5 + n / 10) for n in range(5)]
    wrong = [(f"hen {n}", n % 7, "cow", "blue", -1 + n / 10) for n in range(3)]
    places.write_csv(Path("new.csv"), [head, *right, *wrong])
    audit("--model", run, "--data", "new.csv", "--out", "out", "--labels-out", "labels.csv")
    found = {sample for sample, line in listed("out").items() if line.flagged}
    assert found == {"hen 0", "hen 1", "hen 2"}
    assert {row["sample"]: row["label"] for row in table("labels.csv")} == {
        **{f"cow {n}": "cow" for n in range(5)},
        **{f"hen {n}": "hen" for n in range(3)},
    }
    Path("new.csv").write_text("label,weight,colour\ncow,5,red\n")
    said = refused("--model", run, "--data", "new.csv", "--out", "out 2")
    assert "The table lacks columns that the model was trained on: height." in said
    (run / "encoder.json").unlink()
    said = refused("--model", run, "--data", "t.csv", "--out", "out 2")
    assert f"{run} was trained on a table and has no encoder.json. Try: rofl audit {run} writes it" in said
    audit(run)
    audit("--model", run, "--data", "t.csv", "--out", "out 2")
    assert len(listed("out 2")) == 200


@pytest.mark.parametrize(
    "arguments",
    [[], ["run", "--model", "run"], ["run", "--data", "new"], ["--model", "run"], ["--data", "new"],
     ["run", "--model", "run", "--data", "new"]],
)  # fmt: skip
def test_an_audit_is_of_a_run_or_of_new_data(arguments: list[str], first: Path, refused: Any) -> None:
    assert "An audit is of a run, or of new data by a run's model. Try: rofl audit RUN, or" in refused(*arguments)


# --- labelling tools; tests/audit/test_label_tools.py has each of them ---


def test_suspects_go_to_a_tool_and_decisions_come_back(learnt: Path, audit: Any) -> None:
    run = copied(learnt)
    _, err = audit(run, "--export", "fiftyone", "--out", "for fiftyone")
    suspects = [row for row in RunDir(run).audit.read_suspects() if row.flagged]
    assert f"{len(suspects)} samples for fiftyone: for fiftyone Next: fiftyone.Dataset.from_dir" in err
    file = Path("for fiftyone/labels.json")
    content = json.loads(file.read_text())
    for label in content["labels"].values():
        label["attributes"]["reviewed"] = True
    file.write_text(json.dumps(content))
    out, _ = audit(run, "--decisions", "for fiftyone", "--labels-out", "new.csv", "--decided-only")
    assert f"by people: {len(suspects)} labels wrong, 0 right" in out
    assert {row["sample"]: row["label"] for row in table("new.csv") if row["given"] != row["label"]} == {
        row.sample: row.suggested for row in suspects
    }
    audit(run, "--export", "datalab")
    assert Path("run/datalab/issues.csv").is_file()


def test_suspects_of_new_data_go_beside_their_lists(learnt: Path, audit: Any) -> None:
    write_photos(Path("new"), each=2)
    audit("--model", learnt, "--data", "new", "--out", "out", "--export", "label-studio")
    assert Path("out/label-studio/tasks.json").is_file()
    assert Path("out/suspects").is_dir()


def test_an_export_into_a_full_folder_is_refused_before_anything_is_computed(
    learnt: Path, refused: Any, nothing_is_computed: None
) -> None:
    Path("out").mkdir()
    Path("out/x").touch()
    assert "out exists and is not an empty folder." in refused(learnt, "--export", "cvat", "--out", "out")


# --- JSON, and names ---


def test_json_has_all(first: Path, learnt: Path, audit: Any) -> None:
    out, err = audit(copied(first), "--json")
    found, summary = json.loads(out), RunDir(first).read_summary()
    assert found.keys() == {*FIGURES, "decisions", "folder"}
    assert {key: found[key] for key in FIGURES} == {key: summary.model_dump()[key] for key in FIGURES}
    assert (found["decisions"], found["folder"]) == ({"wrong": 0, "right": 0}, "run")
    assert err == ""
    write_photos(Path("new"), each=2)
    found = json.loads(audit("--model", learnt, "--data", "new", "--out", "out", "--json")[0])
    assert found.keys() == {*FIGURES, "decisions", "folder"}
    assert found["audit"] is found["detection"] is None
    assert set(found["estimated"]["clients"]) == set(CLIENTS)
    assert set(found["classes"]) == set(CLASSES)


def test_names_that_look_like_markup_are_printed_as_they_are(learnt: Path, audit: Any) -> None:
    out, _ = audit(copied(learnt, "[red]run"), "--show", "100")
    for name in (*CLIENTS, *CLASSES):
        assert f"│ {name} " in out
    line = next(line for line in RunDir(learnt).audit.read_suspects() if line.client == "[red]x")
    assert f"│ {line.sample} " in out
    out, err = audit("[red]run", "--show", "0")
    for name in CLIENTS:
        assert f"│ {name} " in out
    assert err == "Each client's own list: [red]run/suspects"


def test_settings_of_the_runs_here_are_those_of_the_command_line() -> None:
    """Else `AGAIN` would not be again."""
    assert resolve_experiment(ExperimentOptions("digits", [*SETS, "method.t_pl=20"])) == digits()


def test_corrected_labels_of_new_data_can_be_trained_with(learnt: Path, audit: Any) -> None:
    """The file names all samples; those that the run holds out to test with keep their labels."""
    write_photos(Path("new"), each=6)
    audit("--model", learnt, "--data", "new", "--out", "out", "--labels-out", "new.csv")
    federated = load_federated(rofl.from_data("new", data__labels=str(Path("new.csv").absolute())).split)
    with open("new.csv", newline="") as file:
        told = {unescape_cell(row["sample"]): row["label"] for row in csv.DictReader(file)}
    assert len(told) > len(federated.labels)
    assert [federated.images.classes[label] for label in federated.labels.tolist()] == [
        told[name] for name in federated.images.ids
    ]


@pytest.mark.parametrize(
    "words", [("RUN", "--out", "x"), ("RUN", "--decided-only"), ("RUN", "--labels-out", "corrected.parquet")]
)
def test_options_that_say_nothing_here_are_refused(learnt: Path, refused: Any, words: tuple[str, ...]) -> None:
    assert words[-1].strip("-") in refused(*(learnt if word == "RUN" else word for word in words)) or words[-1] == "x"
