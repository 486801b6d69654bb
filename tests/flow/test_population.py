"""More clients than samples."""

from pathlib import Path

import pytest

import rofl
from rofl.data.federated import load_federated
from rofl.errors import UserError
from rofl.training.run_dir import RunDir
from tests.flow.tiny import outcome, tiny

MANY = {"clients": 10**6, "cohort": 4, "data__partition": "sampled", "data__samples_per_client": 20}


def test_a_million_clients_learn_and_share_one_list_of_suspects(tmp_path: Path) -> None:
    done = rofl.run(tiny(**MANY), tmp_path / "run", workers=0)
    assert len({client for entry in done.history for client in entry.cohort}) > 10
    assert list(done.summary.estimated.clients) == ["all"]
    suspects = RunDir(done.folder).audit.read_suspects()
    assert sorted(row.row for row in suspects) == list(range(120))
    assert {row.client for row in suspects} == {"all"}


def test_workers_draw_the_same_rows(tmp_path: Path) -> None:
    alone, together = (rofl.run(tiny(**MANY), tmp_path / str(count), workers=count) for count in (0, 1))
    assert outcome(alone.folder) == outcome(together.folder)


@pytest.mark.parametrize(
    "change", [{"noise__client_spread": 0.1}, {"data__brightness": 0.2}, {"setting": "centralized"}]
)
def test_what_needs_clients_of_their_own_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UserError, match="share samples"):
        tiny(**MANY, **change)


def test_clients_that_share_samples_have_no_split_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be saved in a split file"):
        load_federated(tiny(**MANY).split).save(tmp_path / "scene")
