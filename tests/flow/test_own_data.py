"""Data of a user's own, from the path to the list of suspects."""

import csv
import json
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rofl
from rofl.cli import main
from rofl.config.schema import parse_experiment
from rofl.data import image_io
from rofl.data.federated import load_federated
from rofl.errors import UserError
from rofl.report.thumbnails import thumbnails
from rofl.training.run_dir import RunDir
from tests.data.user import places
from tests.flow.tiny import Killed, kill_after, outcome
from tests.report.reading import Page
from tests.report.synthetic import data_of

TINY: dict[str, Any] = {"rounds": 2, "method__epochs": 1, "model__width": 0.125}
SETS = ["--set", "rounds=1", "--set", "method.epochs=1", "--set", "model.width=0.125", "--workers", "0"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return places.write_folder(tmp_path / "photos")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `rofl` here; returns its exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rofl", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, " ".join(said.err.split())

    return call


def own(path: Path, **changes: Any) -> rofl.Experiment:
    return rofl.from_data(path, **{**TINY, **changes})


# --- the command line ---


def test_run_shows_what_it_chose_and_lists_each_clients_suspects(photos: Path, command: Any) -> None:
    code, out, err = command("run", "--data", "photos", *SETS, "--out", "here", "--json")
    assert code == 0, err
    assert "photos: 2 clients, 3 classes, 24 samples to train with and 6 to test with, 8 x 8 pixels, grey" in err
    assert "chosen: model small at width 0.125, batches of 8, 2 of 2 clients a round, 1 round; --quick" in err
    assert "estimated time: about 1 s on this machine" in err
    assert "decoding 30 images" in err
    summary = json.loads(out)
    assert (summary["name"], summary["dataset"], summary["detection"]) == ("photos", "own", None)
    assert (summary["noise"]["ratio"], summary["noise"]["achieved"], summary["note"]) == (0, None, "")
    assert sorted(path.name for path in Path("here/suspects").iterdir()) == ["site 10.csv", "site 2.csv"]
    assert sorted(json.loads(Path("here/clients.json").read_text())) == ["site 10", "site 2"]
    with open("here/suspects/site 10.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["sample", "given", "suggested", "score", "flagged", "row", "client"]
    assert len(rows) == 12
    for row in rows:
        assert (photos / row["sample"]).is_file()
        assert row["sample"].split("/")[:2] == [row["client"], row["given"]]
    federated = load_federated(RunDir(Path("here")).read_experiment().split)
    assert all(federated.images.ids[int(row["row"])] == row["sample"] for row in rows)

    code, out, err = command("run", "here/config.toml", "--out", "again", "--workers", "0", "--json")
    assert json.loads(out)["digest"] == summary["digest"], err
    assert "decoding" not in err
    shutil.rmtree("photos")
    code, out, _ = command("resume", "here", "--json")
    assert (code, json.loads(out)["digest"]) == (0, summary["digest"])


def test_set_and_a_file_count_more_than_what_is_chosen(photos: Path, command: Any) -> None:
    Path("mine.toml").write_text('rounds = 7\n[method]\nlr = 0.03\nbatch = 9\n[model]\nname = "mlp"\n')
    code, _, err = command(
        *("run", "mine.toml", "--data", "photos", *SETS, "--set", "method.batch=10", "--set", "data.side=12"),
        *("--set", "cohort=1", "--method", "plain", "--seed", "3", "--out", "here"),
    )
    assert code == 0, err
    found = RunDir(Path("here")).read_experiment()
    assert (found.rounds, found.seed, found.cohort, found.clients) == (1, 3, 1, 2)
    assert (found.data.side, found.data.channels, found.model.name) == (12, 1, "mlp")
    assert {found.method[key] for key in ("name", "lr", "batch")} == {"plain", 0.03, 10}


def test_a_test_part_elsewhere_and_a_note(photos: Path, command: Any) -> None:
    places.save(Path("more/cat/1.png"), places.picture(0, 77))
    (photos / "site 2" / "cat" / "[bold]bad.png").write_bytes(b"no")
    code, out, err = command("run", "--data", "photos", "--test", "more", *SETS, "--out", "here")
    assert code == 0, err
    assert "30 samples to train with and 1 to test with" in err
    assert "note: Left out, since they cannot be read: 1 image, site 2/cat/[bold]bad.png." in err
    assert "[bold]bad.png" in "".join(out.split())
    assert Path("here/left_out.txt").read_text() == "site 2/cat/[bold]bad.png: not an image\n"


def test_compare_takes_own_data_and_tells_it_once(photos: Path, command: Any) -> None:
    arguments = ["compare", "--data", "photos", *SETS, "--seeds", "1", "--methods", "plain,coteaching", "--json"]
    code, out, err = command(*arguments)
    assert code == 0, err
    assert err.count("2 clients, 3 classes") == 1
    assert [row["method"] for row in json.loads(out)["methods"]] == ["plain", "coteaching"]
    assert RunDir(Path("runs/compare-photos/coteaching-s0")).read_experiment().method["tau"] == 0.2


MISTAKES = {
    "absent": (["run", "--data", "nowhere"], "nowhere. Try: a folder of images, a .csv"),
    "preset": (["run", "digits", "--data", "photos"], "--data brings its own settings"),
    "test alone": (["run", "digits", "--test", "photos"], "data.path is empty"),
    "name alone": (["run", "--set", "data.name=own"], "needs data.path"),
    "key": (["run", "--data", "photos", "--set", "data.sid=8"], "'data.side'"),
    "side": (["run", "--data", "photos", "--set", "data.side=2"], "data.side: 0, or 4 and more"),
    "channels": (["run", "--data", "photos", "--set", "data.channels=2"], "data.channels"),
    "holdout": (["run", "--data", "photos", "--set", "data.holdout=1"], "data.holdout"),
    "clients": (["run", "--data", "photos", "--set", "clients=3"], "The data has 2 clients, not 3. Try: clients=2"),
    "cohort": (["run", "--data", "photos", "--set", "cohort=3"], "cohort = 3 is more than clients = 2"),
    "given": (["run", "digits", "--set", "data.partition=natural"], "digits names no clients"),
    "model": (["run", "--data", "t.csv", "--set", "model.name=small"], "A table does not fit the model small"),
    "light": (["run", "--data", "t.csv", "--set", "data.brightness=0.5"], "data.brightness is for images"),
    "method": (["run", "--data", "photos", "--method", "rolf"], "'rofl'"),
    "few": (["run", "--data", "photos", "--set", "data.train=1"], "has no samples to train on"),
    "quick": (["run", "digits", "--quick"], "choose settings for --data"),
    "both": (["run", "--data", "photos", "--quick", "--thorough"], "exclude each other"),
    "check": (["data", "check", "nowhere"], "There is no nowhere"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake: str, photos: Path, command: Any) -> None:
    places.write_table(Path("t.csv"))
    arguments, sentence = MISTAKES[mistake]
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err
    assert not Path("runs").exists()


# --- rofl data check ---


def test_check_prints_what_is_there(photos: Path, command: Any) -> None:
    (photos / "site 2" / "cat" / "bad.png").write_bytes(b"no")
    shutil.copy(photos / "site 2" / "cat" / "0.png", photos / "site 2" / "dog" / "same.png")
    code, out, err = command("data", "check", "photos")
    assert code == 0, err
    text = " ".join(out.replace("│", " ").split())
    for part in ("site 2 (13), site 10 (12)", "cat (8), dog (", "8 x 8 (31)", "L (31)", "bad.png (not an image)", "="):
        assert part in text, text


def test_check_speaks_json(photos: Path, command: Any) -> None:
    code, out, _ = command("data", "check", "photos", "--json")
    found = json.loads(out)
    assert (code, found["usable"], found["clients"]) == (0, True, {"site 2": 12, "site 10": 12})
    code, out, err = command("data", "check", "photos", "--test", "nowhere", "--json")
    assert (code, json.loads(out)["usable"]) == (2, False)
    assert json.loads(out)["problem"] in err


# --- from Python ---


def test_folder_manifest_and_arrays_give_one_digest(photos: Path, tmp_path: Path) -> None:
    paths = [photos, places.write_manifest(tmp_path / "list.csv"), places.write_arrays(tmp_path / "a.npz")]
    runs = [rofl.run(own(path), tmp_path / path.stem / "run", workers=0) for path in paths]
    assert len({run.summary.digest for run in runs}) == 1
    assert {row.client for row in RunDir(runs[2].folder).audit.read_suspects()} == set(places.CLIENTS)


def test_a_table_trains_with_any_number_of_workers(tmp_path: Path) -> None:
    places.write_table(tmp_path / "t.csv")
    chosen = rofl.from_data(tmp_path / "t.csv", rounds=4)
    assert (chosen.model.name, chosen.clients, chosen.data.side) == ("mlp", 2, 0)
    runs = [rofl.run(chosen, tmp_path / str(workers), workers=workers) for workers in (0, 1)]
    assert runs[0].summary.digest == runs[1].summary.digest
    assert runs[0].summary.final_accuracy > 80
    page = rofl.report.write_report([runs[0].folder], tmp_path / "page.html").read_text()
    assert '"picture":' not in page


def test_images_are_decoded_when_settings_are_chosen_and_not_again(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    chosen = own(photos, progress=lambda *done: told.append(done))
    assert told[-1] == (30, 30)

    def refuse(*_: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(image_io, "decode_image", refuse)
    assert rofl.run(chosen, tmp_path / "run", workers=0).summary.dropped == 0


def test_thorough_is_the_papers_network(tmp_path: Path) -> None:
    for n in range(12):
        places.save(tmp_path / "photos" / "ab"[n % 2] / f"{n}.png", places.picture(n % 2, n, side=40))
    chosen = rofl.from_data(tmp_path / "photos", effort="thorough", method="rofl")
    assert (chosen.model.name, chosen.model.width, chosen.rounds, chosen.method["t_pl"]) == ("cnn9", 1, 100, 33)
    assert rofl.from_data(tmp_path / "photos", effort="quick").model.width == 0.25


def test_a_killed_run_goes_on_and_changed_data_is_noticed(photos: Path, tmp_path: Path) -> None:
    chosen = own(photos, rounds=4)
    with pytest.raises(Killed):
        rofl.run(chosen, tmp_path / "cut", workers=0, listener=kill_after(2))
    shutil.copytree(tmp_path / "cut", tmp_path / "other")
    resumed = rofl.resume(tmp_path / "cut", workers=0)
    assert outcome(resumed.folder) == outcome(rofl.run(chosen, tmp_path / "whole", workers=0).folder)
    places.save(photos / "site 2" / "cat" / "new.png", places.picture(0, 4000))
    with pytest.raises(UserError, match="is not what it was when these settings were chosen"):
        rofl.resume(tmp_path / "other", workers=0)


def test_a_relative_path_is_found_from_elsewhere(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = own(Path("photos"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(load_federated(chosen.split).parts) == 2


@pytest.mark.parametrize(
    ("side", "expected"),
    [(8, ("small", 1.0, 8)), (16, ("small", 1.0, 16)), (20, ("cnn9", 0.25, 20)), (90, ("cnn9", 0.25, 64))],
)
def test_the_model_suits_the_images(tmp_path: Path, side: int, expected: tuple[str, float, int]) -> None:
    for n in range(12):
        places.save(tmp_path / "data" / "xy"[n % 2] / f"{n}.png", places.picture(n % 2, n, side))
    chosen = rofl.from_data(tmp_path / "data")
    assert (chosen.model.name, chosen.model.width, chosen.data.side) == expected


@pytest.mark.parametrize(
    ("sizes", "clients", "cohort", "batch"),
    [([10] * 3, 3, 3, 8), ([200, 200, 7], 3, 3, 13), ([500, 300], 2, 2, 26), ([4] * 14, 14, 10, 8), ([600], 1, 1, 32)],
)
def test_clients_cohort_and_batch(tmp_path: Path, sizes: list[int], clients: int, cohort: int, batch: int) -> None:
    owners = np.repeat(np.arange(len(sizes)), sizes)
    arrays = {
        "images": np.zeros((len(owners), 8, 8), np.uint8),
        "labels": np.arange(len(owners)) % 2,
        "clients": owners,
    }
    np.savez(tmp_path / "a.npz", **arrays)
    chosen = rofl.from_data(tmp_path / "a.npz")
    assert (chosen.clients, chosen.cohort, chosen.method["batch"]) == (clients, cohort, batch)
    assert (chosen.rounds, chosen.method["t_pl"], chosen.method["lr"]) == (30, 10, 0.1)
    assert (chosen.noise.ratio, chosen.method["tau"], chosen.data.partition) == (0, "auto", "natural")


@pytest.mark.parametrize(("samples", "clients", "cohort"), [(30, 1, 1), (100, 4, 4), (1000, 10, 10)])
def test_data_without_clients_is_shared_out(tmp_path: Path, samples: int, clients: int, cohort: int) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((samples, 8, 8), np.uint8), labels=np.arange(samples) % 2)
    chosen = rofl.from_data(tmp_path / "a.npz")
    assert (chosen.clients, chosen.cohort, chosen.data.partition) == (clients, cohort, "iid")
    federated = load_federated(chosen.split)
    assert federated.client_names == tuple(map(str, range(clients)))
    assert len(torch.cat(federated.parts).unique()) == samples * 0.8
    more = rofl.from_data(tmp_path / "a.npz", clients=12, data__partition="dirichlet")
    assert (more.clients, more.cohort, more.data.partition) == (12, 10, "dirichlet")


def test_own_clients_can_be_dissolved(photos: Path) -> None:
    chosen = own(photos, data__partition="iid", clients=6)
    federated = load_federated(chosen.split)
    assert (len(federated.parts), chosen.cohort) == (6, 6)
    assert federated.client_names == ("0", "1", "2", "3", "4", "5")


def test_the_centralized_setting_has_one_owner(photos: Path, tmp_path: Path) -> None:
    chosen = own(photos, setting="centralized")
    assert (chosen.clients, chosen.method["tau"], chosen.method["pseudo"]) == (1, "auto", "naive")
    run = rofl.run(chosen, tmp_path / "run", workers=0)
    assert [path.name for path in (tmp_path / "run" / "suspects").iterdir()] == ["0.csv"]
    assert {row.client for row in RunDir(run.folder).audit.read_suspects()} == {"0"}


def test_settings_by_hand_are_completed(photos: Path, tmp_path: Path) -> None:
    hand = parse_experiment(
        {"data": {"path": str(photos)}, "clients": 2, "cohort": 2, "rounds": 1, "method": {"epochs": 1}}
    )
    assert (hand.data.name, hand.data.partition, hand.data.title) == ("own", "natural", "photos")
    assert (hand.noise.ratio, hand.method["tau"], hand.method["name"]) == (0, "auto", "rofl")
    assert parse_experiment({"data": {"path": "x"}, "method": {"tau": 0.4}}).method["tau"] == 0.4
    assert "tau" not in parse_experiment({"data": {"path": "x"}, "method": {"name": "plain"}}).method
    run = rofl.run(hand, tmp_path / "run", workers=0)
    assert parse_experiment(tomllib.loads((run.folder / "config.toml").read_text())) == hand


@pytest.mark.parametrize("noise", [{"ratio": 0.1}, {"ratio": 0.2, "kind": "pair"}, {"fully_noisy_class": True}])
@pytest.mark.parametrize("data", [{"path": "x"}, {"name": "own", "classes": ["a", "b"]}])
def test_noise_on_own_labels_is_refused_unless_it_is_asked_for(noise: dict[str, Any], data: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"labels of your own data wrong.* method\.tau.*noise\.on_user_data=true"):
        parse_experiment({"data": data, "noise": noise})
    chosen = parse_experiment({"data": data, "noise": {**noise, "on_user_data": True}})
    assert chosen.noise.ratio == noise.get("ratio", 0.0)
    assert chosen.method["tau"] == "auto"


def test_built_in_sets_are_as_they_were() -> None:
    plain = parse_experiment({})
    assert (plain.data.partition, plain.noise.ratio, plain.method["tau"]) == ("iid", 0.4, "known")


def test_names_of_clients_are_safe_and_come_back(tmp_path: Path) -> None:
    names = ["../../up", "A/b", "a?b", "<b>x</b>", "=1+1"]
    owners = np.repeat(names, 12)
    pictures = np.stack([places.picture(n % 2, n) for n in range(60)])
    places.write_arrays(tmp_path / "a.npz", images=pictures, labels=np.arange(60) % 2, clients=owners)
    run = rofl.run(own(tmp_path / "a.npz", rounds=1, method="plain"), tmp_path / "run", workers=0)
    files = sorted(path.name for path in (tmp_path / "run" / "suspects").iterdir())
    assert files == sorted(["_.._up.csv", "A_b.csv", "a_b-2.csv", "_b_x__b_.csv", "_1_1.csv"])
    assert {row.client for row in RunDir(run.folder).audit.read_suspects()} == set(names)
    page = rofl.report.write_report([run.folder], tmp_path / "page.html").read_text()
    assert "<b>x</b>" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page


def test_the_page_shows_names_and_pictures(photos: Path, tmp_path: Path) -> None:
    run = rofl.run(own(photos, rounds=1), tmp_path / "run", workers=0)
    for path in (run.folder / "suspects").iterdir():  # after one round the model doubts nothing by itself
        path.write_text(path.read_text().replace(",no,", ",yes,"))
    text = rofl.report.write_report([run.folder], tmp_path / "page.html").read_text()
    flagged = [row for row in RunDir(run.folder).audit.read_suspects() if row.flagged]
    assert flagged
    data, page = data_of(text), Page(text)
    assert data["sample"] == [row.sample for row in flagged]
    images = load_federated(run.experiment.split).images
    assert data["picture"] == thumbnails(images.train, [images.ids.index(row.sample) for row in flagged]).pictures
    assert "site 2" in page.text
    assert "Noise not known" in page.text
    assert page.text.startswith("photos") or "photos" in page.text[:200]


# --- the document ---

DOCUMENT = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, flags=re.DOTALL)


def test_every_command_of_the_document_runs(photos: Path, tmp_path: Path, command: Any) -> None:
    shutil.copytree(photos / "site 2", tmp_path / "more-photos")
    places.write_manifest(tmp_path / "list.csv")
    places.write_arrays(tmp_path / "arrays.npz")
    places.write_table(tmp_path / "patients.csv")
    lines = [line.split("#")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    assert len(lines) >= 9
    for line in lines:
        words = shlex.split(line)[1:]
        quick = SETS[:-2] if words[0] in ("run", "compare") else []
        code, _, err = command(*words, *quick, *(["--workers", "0"] if words[0] != "data" else []))
        assert code == 0, f"{line}: {err}"


def test_the_snippet_of_the_document_runs(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snippet, on_a_frame = blocks("python")
    exec(on_a_frame, {})
    assert "['" in capsys.readouterr().out
    quick = snippet.replace("rounds=20)", "rounds=1, method__epochs=1)").replace("runs/mine", "runs/quick")
    assert quick != snippet
    exec(quick.replace("out=", "workers=0, out="), {})
    assert "%, see runs/quick/suspects" in capsys.readouterr().out
