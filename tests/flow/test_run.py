"""Starting a run, and what it costs to look at it."""

from pathlib import Path

import pytest

import rofl
from rofl.errors import UserError
from rofl.training.run_dir import RunDir
from tests.flow.tiny import outcome, tiny, undisturbed


def test_a_folder_that_holds_a_run_is_not_touched(tmp_path: Path) -> None:
    rofl.run(tiny(rounds=1), tmp_path / "run", workers=0)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="already holds a run") as error:
        rofl.run(tiny(), tmp_path / "run", workers=0)
    assert "resume" in error.value.hint
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_removed_run_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    rofl.run(tiny(rounds=2, clients=6), tmp_path / "run", workers=0)
    RunDir(tmp_path / "run").remove()
    RunDir(tmp_path / "run").remove()  # where there is none, nothing happens
    rofl.run(tiny(), tmp_path / "run", workers=0)
    assert outcome(tmp_path / "run") == undisturbed(tiny())
    assert len(list((tmp_path / "run" / "suspects").iterdir())) == 4


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="exists and is not an empty folder"):
        rofl.run(tiny(), tmp_path, workers=0)
    with pytest.raises(UserError, match="exists and is not an empty folder"):
        rofl.run(tiny(), tmp_path / "thesis.tex", workers=0)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["years of work"]


def test_an_empty_folder_is_welcome(tmp_path: Path) -> None:
    assert rofl.run(tiny(rounds=1), tmp_path, workers=0).folder == tmp_path


def test_an_experiment_that_cannot_start_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too few"):
        rofl.run(tiny(clients=100, cohort=3), tmp_path / "run", workers=0)
    assert not (tmp_path / "run").exists()


def test_without_a_folder_each_run_gets_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [rofl.run(tiny(rounds=1), workers=0).folder for _ in range(2)]
    assert folders == [Path("runs/digits-rofl-1"), Path("runs/digits-rofl-2")]


def test_evaluation_happens_every_so_often_and_in_the_last_ten_rounds(tmp_path: Path) -> None:
    experiment = tiny(rounds=17, evaluate_every=3, clients=2, cohort=1, data__train=20, data__test=20)
    done = rofl.run(experiment, tmp_path / "run", workers=0)
    looked_at = [entry.round for entry in done.history if entry.accuracy is not None]
    assert looked_at == [3, 6, *range(8, 18)]
    last = [entry.accuracy for entry in done.history[-10:]]
    assert done.summary.test_accuracy == pytest.approx(sum(last) / 10)
    assert done.summary.final_accuracy == last[-1]


def test_looking_does_not_change_what_is_seen() -> None:
    assert (
        undisturbed(tiny(rounds=12, evaluate_every=1)).digest == undisturbed(tiny(rounds=12, evaluate_every=7)).digest
    )


def test_the_checkpoint_interval_does_not_change_the_result() -> None:
    assert undisturbed(tiny(checkpoint_every=1)).digest == undisturbed(tiny(checkpoint_every=3)).digest


def test_the_listener_hears_each_round_when_it_is_on_disk(tmp_path: Path) -> None:
    heard = []

    def listener(experiment: rofl.Experiment, entry: dict) -> None:  # type: ignore[type-arg]
        assert RunDir(tmp_path / "run").read_history()[-1] == entry
        heard.append((experiment, entry.round))

    rofl.run(tiny(), tmp_path / "run", workers=0, listener=listener)
    assert heard == [(tiny(), index) for index in (1, 2, 3, 4)]


def test_a_validation_run_never_sees_the_test_set(tmp_path: Path) -> None:
    """The held-out images are the last of the training part; they train nobody."""
    done = rofl.run(tiny(rounds=1, data__train=None, data__validation=1000), tmp_path / "run", workers=0)
    samples = [row.row for row in RunDir(done.folder).audit.read_suspects()]
    assert sorted(samples) == list(range(437))


def test_the_summary_estimates_the_noise_of_each_client_from_its_own_list(tmp_path: Path) -> None:
    done = rofl.run(tiny(), tmp_path / "run", workers=0)
    estimated, suspects = done.summary.estimated, RunDir(done.folder).audit.read_suspects()
    flagged = [suspect.flagged for suspect in suspects]
    assert estimated.ratio == pytest.approx(sum(flagged) / len(flagged))
    for client, share in estimated.clients.items():
        own = [mark for suspect, mark in zip(suspects, flagged, strict=True) if suspect.client == client]
        assert share == pytest.approx(sum(own) / len(own), abs=1e-6)
        scores = [suspect.score for suspect in suspects if suspect.client == client]
        assert estimated.expected_clients[client] == pytest.approx(sum(scores) / len(scores), abs=1e-4)
    scores = [suspect.score for suspect in suspects]
    left = [suspect.score for suspect in suspects if not suspect.flagged]
    assert estimated.expected_ratio == pytest.approx(sum(scores) / len(scores), abs=1e-4)
    assert estimated.expected_unflagged == pytest.approx(sum(left) / len(scores), abs=1e-4)
    assert len(estimated.clients) == 4
    for row, shares in enumerate(estimated.transition):
        assert sum(shares) == pytest.approx(1, abs=1e-4)
        of_class = [suspect for suspect in suspects if suspect.suggested == str(row)]
        kept = sum(suspect.given == str(row) for suspect in of_class)
        assert shares[row] == pytest.approx(kept / len(of_class) if of_class else 1, abs=1e-6)
