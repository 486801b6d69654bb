"""rofl-plus takes the rate of wrong labels from held-out labels: the same at sites as on one machine, and checked."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import ArrayRecord

import rofl
from rofl.core.held_out_fit import GRID, HeldOutSums, sum_held_out
from rofl.core.noise_posterior import flat_pattern, is_pattern, positive_pattern
from rofl.core.tensors import digest
from rofl.federation import MethodStrategy
from rofl.federation.federated_training import ServerEngine
from rofl.federation.protocol import RoundRequest, decode_request, encode_request
from rofl.federation.site_evaluation import SiteEvaluation, pooled_counts
from rofl.federation.site_gate import SiteGate
from rofl.federation.site_policy import SitePolicy
from rofl.training.held_out import HeldOut
from rofl.training.inputs import load_inputs
from rofl.training.loop import load_or_init, train
from rofl.training.run_dir import RunDir
from tests.federation.test_in_memory import begin, experiment, grid_of
from tests.federation.test_noise_exchange import SITES, Federation

ROUNDS = 6
PLUS: dict[str, Any] = {
    **{"data__train": 480, "data__validation_share": 0.25, "noise__ratio": 0.4, "transport": "fixed"},
    **{"model__name": "mlp", "model__width": 0.5, "rounds": ROUNDS, "cohort": SITES, "evaluate_every": 1},
}
LABELS = torch.tensor([0, 1, 1, 0, 2, 2, 1, 0, 2, 0])


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> rofl.Run:
    return rofl.run(experiment("rofl-plus", **PLUS), tmp_path_factory.mktemp("local") / "run", workers=0)


def test_each_evaluation_fits_the_rate_and_training_uses_it_from_round_three_on(local: rofl.Run) -> None:
    rates = [record.held_out.noise_rate for record in local.history if record.held_out is not None]
    assert len(rates) == ROUNDS
    known = [rate for rate in rates if rate is not None]
    assert len(known) == ROUNDS
    mean = known[0]
    for rate in known[1 : local.summary.selected_round - 2]:
        mean = (mean + rate) / 2
    state = RunDir(local.folder).checkpoints.read_saved_model(local.summary)
    assert float(state.aux["noise/numbers"][8]) == pytest.approx(mean, abs=1e-6)


def test_any_number_of_workers_and_a_resume_give_the_same_digest(local: rofl.Run, tmp_path: Path) -> None:
    assert rofl.run(experiment("rofl-plus", **PLUS), tmp_path / "two", workers=2).summary.digest == local.summary.digest

    def stop(_: object, record: rofl.RoundRecord) -> None:
        if record.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(rofl.Interrupted):
        rofl.run(experiment("rofl-plus", **PLUS), tmp_path / "cut", workers=1, listener=stop)
    assert rofl.resume(tmp_path / "cut", workers=1).summary.digest == local.summary.digest


@pytest.mark.parametrize("masks", [False, True])
def test_sites_train_with_the_rate_of_all_their_held_out_labels(masks: bool, local: rofl.Run, tmp_path: Path) -> None:
    """Sums of fixed-point numbers give the same rate in any order, also where only the sum is known."""
    chosen = experiment("rofl-plus", **PLUS)
    folder, engine = RunDir(tmp_path / "run"), Federation(chosen, tmp_path / "sites", masks).coordinator()
    folder.write_experiment(chosen)
    start = load_or_init(folder, chosen, load_inputs(chosen, None)[1])
    trained = train(folder, chosen, start, ServerEngine(engine, 10, None), None)
    assert digest(trained.last.model, trained.last.aux) == local.summary.digest
    assert [_rate(record) for record in trained.history] == [_rate(record) for record in local.history]


def test_flowers_own_loop_does_so_too(local: rofl.Run) -> None:
    chosen = experiment("rofl-plus", **PLUS)
    strategy = MethodStrategy(chosen.build_method(), begin(chosen), chosen)
    strategy.start(grid_of(3), ArrayRecord({}), num_rounds=ROUNDS)
    assert digest(strategy.server_state.model, strategy.server_state.aux) == local.summary.digest


def test_the_papers_method_fits_nothing(tmp_path: Path) -> None:
    run = rofl.run(experiment("rofl", **{**PLUS, "rounds": 2}), tmp_path / "run", workers=0)
    assert [_rate(record) for record in run.history] == [None, None]


def test_a_few_held_out_labels_do_not_tell_training_the_rate(tmp_path: Path) -> None:
    run = rofl.run(experiment("rofl-plus", **{**PLUS, "data__train": 180, "rounds": 2}), tmp_path / "run", workers=0)
    assert [record.held_out.samples for record in run.history if record.held_out is not None] == [45, 45]
    assert [_rate(record) for record in run.history] == [None, None]


def _rate(record: rofl.RoundRecord) -> float | None:
    return None if record.held_out is None else record.held_out.noise_rate


# --- what a site sends, and what is refused ---


def evaluation(table: torch.Tensor | None = None) -> SiteEvaluation:
    probabilities = torch.full((len(LABELS), 3), 0.1).scatter(1, LABELS.unsqueeze(1), 0.8)
    sums = sum_held_out(LABELS, probabilities, flat_pattern(3))
    counts = HeldOut(predicted=[4, 3, 3], labelled=[4, 3, 3], agreed=10)
    return SiteEvaluation(10, 10, counts, sums if table is None else HeldOutSums(table, 10))


def evaluation_table(sure: float) -> torch.Tensor:
    sent = evaluation().noise
    assert sent is not None
    return torch.cat([sent.likelihoods, torch.full((GRID[0], 1), sure)], dim=1)


def test_what_a_site_sends_arrives_as_it_was() -> None:
    sent = evaluation()
    found = SiteEvaluation.decode(sent.encode(), 3, flat_pattern(3))
    assert sent.noise is not None
    assert found.noise is not None
    torch.testing.assert_close(found.noise.table, sent.noise.table, atol=1e-9, rtol=0)
    assert found.noise.samples == 10


@pytest.mark.parametrize(
    "table",
    [
        torch.full(GRID, 0.5),
        torch.full(GRID, -1e6),
        torch.zeros(GRID).index_fill(1, torch.tensor([8]), -40.0),
        evaluation_table(sure=11.0),
    ],
    ids=["above 0", "below all", "one rate alone", "more sure samples than samples"],
)
def test_likelihoods_that_no_labels_can_have_are_refused(table: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="its likelihoods are impossible for 10 labels"):
        SiteEvaluation.decode(evaluation(table.double()).encode(), 3, flat_pattern(3))


def test_an_answer_without_likelihoods_is_refused() -> None:
    with pytest.raises(ValueError, match="it has no likelihoods"):
        SiteEvaluation.decode(replace(evaluation(), noise=None).encode(), 3, flat_pattern(3))


def test_likelihoods_stay_where_the_policy_lets_no_evaluation_leave() -> None:
    closed = SiteGate(SitePolicy(send_evaluation=False), own_data=True).evaluation(evaluation())
    sent = SiteEvaluation.decode(closed.encode(), 3, flat_pattern(3))
    assert sent.noise is not None
    assert (sent.noise.samples, float(sent.noise.table.abs().sum())) == (0, 0.0)
    together = pooled_counts([sent, evaluation()])
    assert together is not None
    assert together.noise_rate is None  # ten samples are too few


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0])
def test_a_coordinator_cannot_single_out_a_class_by_its_pattern(bad: float) -> None:
    """With a label that is impossible for all classes but one, a sum would tell about the samples of that class."""
    wanted = torch.eye(4).roll(1, 0)
    wanted[0, 1] = bad
    pattern = positive_pattern(wanted)
    assert is_pattern(pattern)
    torch.testing.assert_close(pattern.sum(dim=1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("transport", ["full", "half", "fixed"])
def test_an_honest_site_is_believed_however_the_pattern_travels(transport: str) -> None:
    """A model that predicts one class for all, at a site that has another one only: likelihoods at their lowest."""
    chosen = experiment("rofl-plus", transport=transport)
    method = chosen.build_method()
    state = load_or_init(RunDir(Path("none")), chosen, load_inputs(chosen, None)[1]).server_state
    classes = len(state.aux["noise/pattern"])
    generator = torch.Generator().manual_seed(0)
    pattern = torch.rand(classes, classes, generator=generator).fill_diagonal_(0)
    state = replace(state, aux={**state.aux, "noise/pattern": pattern / pattern.sum(dim=1, keepdim=True)})
    request = encode_request(RoundRequest(chosen.toml(), 1), state.evaluated())
    _, received = decode_request(request)
    assert received is not None
    ours, theirs = method.held_out_pattern(state), method.held_out_pattern(received)
    assert ours is not None
    assert theirs is not None
    assert torch.equal(ours, theirs)
    predicted = int((ours + torch.eye(classes)).min(dim=1).values.argmin())
    label = int((ours[predicted] + torch.eye(classes)[predicted]).argmin())
    probabilities = torch.zeros(300, classes).index_fill(1, torch.tensor([predicted]), 1.0)
    sums = sum_held_out(torch.full((300,), label), probabilities, theirs)
    counts = [300 * (each == predicted) for each in range(classes)], [300 * (each == label) for each in range(classes)]
    sent = SiteEvaluation(0, 300, HeldOut(predicted=counts[0], labelled=counts[1], agreed=0), sums)
    found = SiteEvaluation.decode(sent.encode(), classes, ours)
    assert found.noise is not None
    assert found.noise.samples == 300
