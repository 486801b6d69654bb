"""The label noise is estimated from all sites' sums: the lists that sites write are those of a run on one machine."""

import json
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

import rofl
from rofl.audit.held_out_noise import DISCOUNTS, ScoreSums
from rofl.audit.noise_estimation import (
    LabelNoise,
    PredictionSums,
    SureSums,
    estimate_matrix,
    noise_of_sums,
    sum_predictions,
    sum_sure,
)
from rofl.audit.suspect_list import SuspectRow, read_suspects
from rofl.config.schema import Experiment
from rofl.core.held_out_fit import HeldOutSums, sum_held_out
from rofl.core.noise_posterior import flat_pattern, noise_pattern
from rofl.core.rng import generator
from rofl.errors import UserError
from rofl.federation import FlowerEngine, make_client_app
from rofl.federation.event_log import EventLog, read_log
from rofl.federation.final_reports import FinalReports
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.noise_records import (
    decode_predictions,
    decode_scores,
    decode_sure,
    encode_predictions,
    encode_scores,
    encode_sure,
    get_fitted_noise,
    get_noise,
    get_noise_facts,
    no_held_out,
    put_noise,
    put_noise_facts,
)
from rofl.federation.protocol import RoundRequest, encode_request, put_sums
from rofl.federation.round_driver import RoundDriver
from rofl.federation.site_client import SiteClient
from rofl.federation.site_data import PartitionedData
from rofl.federation.site_gate import SiteGate
from rofl.federation.site_policy import SitePolicy
from rofl.federation.site_registry import SiteRegistry
from rofl.federation.tensor_records import put_tensors
from rofl.training.inputs import load_inputs
from rofl.training.label_audit import audit_run
from rofl.training.run_dir import RunDir
from tests.federation.in_memory_grid import InMemoryGrid
from tests.federation.test_in_memory import experiment
from tests.federation.test_site_policy import guarded, scans  # noqa: F401

SITES = 3
STEPS = ("query.noise", "query.sure", "query.report", "query.finish")
Answer = Callable[[Message, int], RecordDict | None]  # request, client -> another answer than an honest one


class Killed(BaseException):
    """What ends a coordinator without a word."""


class Federation:
    """Three sites in this process, which write their lists into one folder, and a coordinator that may be killed.

    Args:
        chosen: The settings.
        out: The folder; `farewells.json` is in it, too.
        masks: Whether sums are masked.
        answer: What a site answers instead.
        policies: Of some sites, whose data is then their own.
    """

    def __init__(
        self,
        chosen: Experiment,
        out: Path,
        masks: bool = False,
        answer: Answer = lambda message, client: None,
        policies: Mapping[int, SitePolicy] | None = None,
    ) -> None:
        self.chosen, self.out, self.masks, self.answer = chosen, out, masks, answer
        self.kinds: list[str] = []
        self.heard: list[str] = []
        self.said: dict[int, list[str]] = {client: [] for client in range(SITES)}
        policies = policies or {}
        self.gates = {
            client: SiteGate(
                policies.get(client),
                client in policies,
                SiteMasks(client) if masks else None,
                EventLog(out / f"log-{client}"),
                on_message=self.said[client].append,
            )
            for client in range(SITES)
        }
        app = make_client_app(
            PartitionedData(out=out), lambda context: self.gates[int(context.node_config["partition-id"])]
        )

        def reply(message: Message, context: Context) -> Message:
            self.kinds.append(message.metadata.message_type)
            other = self.answer(message, int(context.node_config["partition-id"]))
            return app(message, context) if other is None else Message(other, reply_to=message)

        self.grid = InMemoryGrid(reply, [{"partition-id": client} for client in range(SITES)])  # type: ignore[arg-type]

    def coordinator(self) -> FlowerEngine:
        """Return a coordinator that goes on from what an earlier one left in the folder."""
        registry = SiteRegistry(self.grid, SITES, on_message=self.heard.append)
        registry.wait_for_sites(RoundRequest(self.chosen.toml()), 5)
        driver = RoundDriver(registry, self.chosen.build_method(), SITES, self.chosen.seed, self.chosen.toml())
        return FlowerEngine(driver, masks=self.masks, final_reports=FinalReports(self.out / "farewells.json"))

    def finish(self, local: Path) -> frozenset[int]:
        """End a run with the model of a run on one machine; return the sites that came to the end."""
        run = RunDir(local)
        state = run.checkpoints.read_saved_model(run.read_summary())
        history = json.dumps([record.model_dump() for record in run.read_history()])
        return self.coordinator().finish(state, self.chosen.rounds, history, classes=10).finished

    def lists(self) -> dict[int, list[SuspectRow]]:
        return {client: read_list(self.out, client) for client in range(SITES)}


def settings(**changes: Any) -> Experiment:
    """Sites of which each has a few classes only: what one alone takes for noise differs from what all do."""
    skewed = {"data__partition": "classes", "data__client_classes": 4, "data__train": 360, "noise__ratio": 0.4}
    light = {"model__name": "mlp", "model__width": 0.5, "rounds": 4, "cohort": SITES, "transport": "fixed"}
    return experiment("plain", **{**skewed, **light, **changes})


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("local") / "run"
    rofl.run(settings(), folder, workers=0)
    return folder


def read_list(folder: Path, client: int) -> list[SuspectRow]:
    """A client's list in the order of its samples."""
    return sorted(read_suspects(folder / "suspects" / f"{client}.csv"), key=lambda each: each.row)


def judged(rows: list[SuspectRow]) -> list[tuple[str, str, bool]]:
    return [(each.given, each.suggested, each.flagged) for each in rows]


def same(found: list[SuspectRow], expected: list[SuspectRow]) -> bool:
    """Whether two lists say the same; a site counts its samples from 0."""
    assert len(found) == len(expected) > 0
    scores = [each.score for each in found], [each.score for each in expected]
    return judged(found) == judged(expected) and scores[0] == pytest.approx(scores[1], abs=2e-6)


def equal_lists(federation: Federation, local: Path) -> list[int]:
    """The sites whose lists are those of a run on one machine."""
    return [client for client, rows in federation.lists().items() if same(rows, read_list(local, client))]


# --- equal to a local run ---


@pytest.mark.parametrize("masks", [False, True])
def test_the_lists_of_sites_are_those_of_a_local_run(masks: bool, local: Path, tmp_path: Path) -> None:
    federation = Federation(settings(), tmp_path / "sites", masks)
    assert federation.finish(local) == {0, 1, 2}
    assert equal_lists(federation, local) == [0, 1, 2]
    assert list(dict.fromkeys(federation.kinds[SITES:])) == [
        kind
        for step in STEPS
        for kind in ([step, "query.unmask"] if masks and step == STEPS[0] else [step])
        if masks or step != "query.report"
    ]
    assert federation.said == {0: [], 1: [], 2: []}


def test_they_are_so_after_another_look_at_a_sites_folder(local: Path, tmp_path: Path) -> None:
    """The estimate is kept in the site's folder, and `rofl audit` uses it."""
    federation = Federation(settings(), tmp_path / "sites")
    federation.finish(local)
    shutil.rmtree(tmp_path / "sites" / "suspects")
    audit_run(tmp_path / "sites", workers=0)  # the settings are those of the site that wrote last
    assert same(read_list(tmp_path / "sites", 2), read_list(local, 2))


def test_a_site_alone_would_write_another_list(local: Path, tmp_path: Path) -> None:
    """Otherwise the tests of this page would show nothing."""
    federation = Federation(settings(), tmp_path / "sites", answer=silent(*STEPS[:1], clients=(0, 1, 2)))
    assert federation.finish(local) == {0, 1, 2}
    assert equal_lists(federation, local) == []


def test_sums_of_parts_give_the_estimate_of_all_samples() -> None:
    drawn = torch.randn(600, 5, generator=generator(0, "test"))
    labels, probabilities = torch.arange(600) % 5, (3 * drawn).double().softmax(1)
    probabilities[::2] = torch.eye(5, dtype=torch.float64)[labels[::2]] * 0.6 + 0.08
    parts = [range(100), range(100, 350), range(350, 600)]
    first = [sum_predictions(labels[part], probabilities[part]) for part in parts]
    total = first[0] + first[1] + first[2]
    second = [sum_sure(labels[part], probabilities[part], total.mean_doubt) for part in parts]
    found = noise_of_sums(total, second[0] + second[1] + second[2])
    assert found.learnt > 0.1
    assert found.discounted().allclose(estimate_matrix(labels, probabilities), rtol=0, atol=1e-12)


def test_equal_doubts_of_all_samples_are_all_sure_after_rounding() -> None:
    """A mean that is rounded down would leave nobody."""
    labels, probabilities = torch.tensor([0, 0, 0, 1]).repeat(100), torch.tensor([[0.8, 0.2]]).double().repeat(400, 1)
    sent = decode_predictions(encode_predictions(sum_predictions(labels, probabilities)), 2, 400)
    assert sum_sure(labels, probabilities, sent.mean_doubt) == SureSums(400, 100)


HELD_OUT = {"data__validation_share": 0.25, "data__partition": "iid"}


@pytest.fixture(scope="module")
def with_held_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("held-out") / "run"
    rofl.run(settings(**HELD_OUT), folder, workers=0)
    return folder


@pytest.mark.parametrize("masks", [False, True])
def test_held_out_samples_of_all_sites_give_the_lists_of_a_local_run(
    masks: bool, with_held_out: Path, tmp_path: Path
) -> None:
    federation = Federation(settings(**HELD_OUT), tmp_path / "sites", masks)
    assert federation.finish(with_held_out) == {0, 1, 2}
    assert "query.scores" in federation.kinds
    assert equal_lists(federation, with_held_out) == [0, 1, 2]
    noise = RunDir(tmp_path / "sites").audit.read_noise(10)
    assert noise is not None
    assert noise.temperature is not None
    scores = torch.tensor([row.score for rows in federation.lists().values() for row in rows])
    assert float(scores.mean()) == pytest.approx(noise.rate, abs=0.02)


def test_a_coordinator_that_is_killed_before_the_third_sums_goes_on(with_held_out: Path, tmp_path: Path) -> None:
    def kill(message: Message, who: int) -> RecordDict | None:
        if (message.metadata.message_type, who) == ("query.scores", 1):
            raise Killed
        return None

    federation = Federation(settings(**HELD_OUT), tmp_path / "sites", True, kill)
    with pytest.raises(Killed):
        federation.finish(with_held_out)
    federation.answer = lambda message, client: None
    assert federation.finish(with_held_out) == {0, 1, 2}
    assert equal_lists(federation, with_held_out) == [0, 1, 2]
    assert federation.kinds.count("query.sure") == SITES


def test_where_no_site_sends_scores_they_are_not_calibrated(with_held_out: Path, tmp_path: Path) -> None:
    federation = Federation(settings(**HELD_OUT), tmp_path / "sites", answer=silent("query.scores", clients=(0, 1, 2)))
    assert federation.finish(with_held_out) == {0, 1, 2}
    noise = RunDir(tmp_path / "sites").audit.read_noise(10)
    assert noise is not None
    assert (noise.temperature is not None, noise.learnt) == (True, 0.0)


def test_held_out_sums_stay_where_the_policy_does_not_let_evaluations_leave(tmp_path: Path) -> None:
    gate = SiteGate(SitePolicy(min_samples_per_evaluation=30), own_data=True, log=EventLog(tmp_path / "log"))
    few, enough = (HeldOutSums(torch.full((13, 18), -1.0).double(), count) for count in (29, 30))
    assert gate.sure(SureSums(5, 1), few, 50)[1].samples == 0
    assert gate.sure(SureSums(5, 1), enough, 50) == (SureSums(5, 1), enough)
    assert read_log(tmp_path / "log")[-1].facts["samples"] == 29
    closed = SiteGate(SitePolicy(send_evaluation=False), own_data=True)
    assert closed.sure(SureSums(5, 1), enough, 50)[1].samples == 0


# --- sites that do not answer, or answer nonsense ---


def silent(*kinds: str, clients: tuple[int, ...] = (1,)) -> Answer:
    def answer(message: Message, client: int) -> RecordDict | None:
        if message.metadata.message_type in kinds and client in clients:
            raise ConnectionError("it is gone")
        return None

    return answer


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("kind", ["query.noise", "query.sure"])
def test_a_site_that_does_not_answer_stops_nobody(kind: str, masks: bool, local: Path, tmp_path: Path) -> None:
    federation = Federation(settings(), tmp_path / "sites", masks, silent(kind))
    assert federation.finish(local) == {0, 1, 2}
    assert any("client 1 is not counted" in text for text in federation.heard)
    assert federation.said == {0: [], 1: [], 2: []}  # all judge by the sums of those that answered
    assert RunDir(tmp_path / "sites").audit.read_noise(10) is not None


@pytest.mark.parametrize("masks", [False, True])
def test_where_nobody_answers_each_site_estimates_alone_and_says_so(masks: bool, local: Path, tmp_path: Path) -> None:
    federation = Federation(settings(), tmp_path / "sites", masks, silent("query.sure", clients=(0, 1, 2)))
    assert federation.finish(local) == {0, 1, 2}
    sentence = (
        "The label noise is estimated from this site's labels alone: the coordinator sends no estimate over all sites."
    )
    assert federation.said == {client: [sentence] for client in range(SITES)}
    assert not (tmp_path / "sites" / "noise.json").exists()


TABLE = torch.tensor([[3, 1], [1, 1]])


@pytest.mark.parametrize("masks", [False, True])
def test_a_site_that_restarts_before_the_last_request_is_waited_for(masks: bool, local: Path, tmp_path: Path) -> None:
    node = 3  # of client 1

    def restart(message: Message, client: int) -> RecordDict | None:
        if message.metadata.message_type == "query.sure" and client == 1:
            federation.grid.offline.add(node)
            threading.Timer(0.5, federation.grid.offline.discard, [node]).start()
        return None

    federation = Federation(settings(), tmp_path / "sites", masks, restart)
    assert federation.finish(local) == {0, 1, 2}


def first_pass(samples: Any = 6, doubt: Any = 1.5, table: torch.Tensor = TABLE) -> RecordDict:
    return put_tensors(put_sums(RecordDict(), {"samples": samples, "doubt": doubt}), tables={"predicted": table})


def second_pass(sure: SureSums = SureSums(2, 1), held_out: float = 0.0, samples: int = 3) -> RecordDict:  # noqa: B008
    return encode_sure(sure, HeldOutSums(torch.full((13, 18), held_out).double(), samples))


BAD_PREDICTIONS = {
    "nothing": (RecordDict(), "it has no record 'sums'"),
    "a negative count": (first_pass(table=TABLE - 2), "its table does not count 6 samples"),
    "nan": (first_pass(samples=float("nan")), "its samples cannot be counted"),
    "floats": (first_pass(table=TABLE.double() * float("nan")), "it has no table of counts of 2 classes"),
    "huge": (first_pass(samples=2.0**52, table=TABLE * 2**51), "its table does not count"),
    "huge, and adding up": (first_pass(600, 1.5, 100 * TABLE), "it counts 600 samples, and 6 were declared"),
    "counts that wrap around": (first_pass(table=TABLE + 2**62), "its table does not count 6 samples"),
    "another shape": (first_pass(table=torch.ones(3, 2).long()), "it has no table of counts of 2 classes"),
    "doubt is nan": (first_pass(doubt=float("nan")), "its doubt is not between 0 and 6"),
    "doubt below 0": (first_pass(doubt=-0.5), "its doubt is not between 0 and 6"),
    "doubt above all": (first_pass(doubt=6.5), "its doubt is not between 0 and 6"),
    "endless doubt": (first_pass(doubt=float("inf")), "its doubt is not between 0 and 6"),
}
BAD_SURE = {
    "nothing": (RecordDict(), "it has no record 'sums'"),
    "nan": (put_sums(RecordDict(), {"sure": float("nan"), "disagreements": 0}), "its sure cannot be counted"),
    "negative": (put_sums(RecordDict(), {"sure": 5, "disagreements": -1}), "its disagreements cannot be counted"),
    "too many": (second_pass(SureSums(7, 1)), "it counts 1 disagreements of 7 samples, and 6 were declared"),
    "more disagreements": (second_pass(SureSums(2, 3)), "it counts 3 disagreements of 2 samples"),
    "no likelihoods": (
        put_sums(RecordDict(), {"sure": 2, "disagreements": 1, "held out": 0}),
        "it has no arrays, or no layout of them",
    ),
    "too many held out": (second_pass(held_out=-1.0, samples=7), "it holds out 7 samples, and 6 were declared"),
    "likelihoods above 0": (second_pass(held_out=0.5), "its likelihoods are impossible for 3 labels"),
    "likelihoods below all": (second_pass(held_out=-100.0), "its likelihoods are impossible for 3 labels"),
    "likelihoods of others": (second_pass(held_out=-10.0), "its likelihoods are impossible for 3 labels"),
    "another grid": (
        encode_sure(SureSums(2, 1), HeldOutSums(torch.zeros(18, 13).double(), 3)),
        "it has no likelihoods",
    ),
}
BAD_SCORES = {
    "nothing": (RecordDict(), "it has no record 'sums'"),
    "too many": (encode_scores(ScoreSums(torch.zeros(9), 7)), "it counts 7 samples, and 6 were declared"),
    "another number": (encode_scores(ScoreSums(torch.zeros(8), 3)), "it has no scores"),
    "above 1": (encode_scores(ScoreSums(torch.full((9,), 5.0), 3)), "its scores are impossible for 3 samples"),
    "negative": (encode_scores(ScoreSums(torch.full((9,), -1.0), 3)), "its scores are impossible for 3 samples"),
    "falling": (encode_scores(ScoreSums(torch.linspace(3, 0, 9), 3)), "its scores are impossible for 3 samples"),
}


@pytest.mark.parametrize("name", sorted(BAD_SCORES))
def test_wrong_sums_of_scores_are_refused(name: str) -> None:
    content, sentence = BAD_SCORES[name]
    with pytest.raises(ValueError, match=f"^{sentence}"):
        decode_scores(content, declared=6)


@pytest.mark.parametrize("name", sorted(BAD_PREDICTIONS))
def test_wrong_sums_of_predictions_are_refused(name: str) -> None:
    content, sentence = BAD_PREDICTIONS[name]
    with pytest.raises(ValueError, match=f"^{sentence}"):
        decode_predictions(content, classes=2, declared=6)


@pytest.mark.parametrize("name", sorted(BAD_SURE))
def test_wrong_sums_of_sure_samples_are_refused(name: str) -> None:
    content, sentence = BAD_SURE[name]
    with pytest.raises(ValueError, match=f"^{sentence}"):
        decode_sure(content, declared=6, pattern=flat_pattern(2))


@pytest.mark.parametrize("kind", ["query.noise", "query.sure"])
def test_a_site_that_counts_more_than_it_declared_is_left_out_of_the_sums(
    kind: str, local: Path, tmp_path: Path
) -> None:
    huge = {
        "query.noise": encode_predictions(PredictionSums(10**6 * torch.ones(10, 10).long(), 5.0)),
        "query.sure": encode_sure(SureSums(10**6, 10**6), no_held_out()),
    }

    def answer(message: Message, client: int) -> RecordDict | None:
        return huge[kind] if message.metadata.message_type == kind and client == 1 else None

    federation = Federation(settings(), tmp_path / "sites", answer=answer)
    assert federation.finish(local) == {0, 1, 2}
    (sentence,) = [text for text in federation.heard if "client 1 is not counted" in text]
    assert "were declared" in sentence
    without = Federation(settings(), tmp_path / "others", answer=silent(kind))
    without.finish(local)
    assert all(same(rows, without.lists()[client]) for client, rows in federation.lists().items())


def test_under_masks_a_sum_of_more_samples_than_declared_is_not_used(
    local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = SiteClient.sum_predictions

    def boasting(self: SiteClient, server_state: Any) -> PredictionSums:
        sums = count(self, server_state)
        return replace(sums, counts=1000 * sums.counts) if self.client == 1 else sums

    monkeypatch.setattr(SiteClient, "sum_predictions", boasting)
    federation = Federation(settings(), tmp_path / "sites", masks=True)
    assert federation.finish(local) == {0, 1, 2}
    assert [text for text in federation.heard if "The counts of the sites cannot be used: it counts" in text]
    assert all("labels alone" in text for (text,) in federation.said.values())


# --- a coordinator's estimate that cannot be used ---


def estimate(matrix: Any, learnt: float = 0.5, temperature: float | None = None, deviation: float = 0.0) -> RecordDict:
    return put_noise(RecordDict(), LabelNoise(torch.as_tensor(matrix), learnt, temperature, deviation))


EYE = torch.eye(2, dtype=torch.float64)
BAD_NOISE = {
    "not stochastic": (estimate(0.9 * EYE), "a row of its noise matrix does not sum to 1"),
    "zeros": (estimate(0 * EYE), "a row of its noise matrix does not sum to 1"),
    "nan": (estimate(float("nan") * EYE), "its noise matrix holds a number that is not a probability"),
    "infinite": (estimate(EYE / 0), "its noise matrix holds a number that is not a probability"),
    "negative": (estimate([[1.5, -0.5], [0.0, 1.0]]), "its noise matrix"),
    "another shape": (estimate(torch.eye(3, dtype=torch.float64)), "its noise matrix is not one of 2 classes"),
    "no matrix": (estimate(torch.ones(2, dtype=torch.float64)), "its noise matrix is not one of 2 classes"),
    "another type": (estimate(EYE.long()), "its noise matrix is not one of 2 classes"),
    "learnt above 1": (estimate(EYE, 1.5), "its learnt is not between 0 and 1"),
    "learnt is nan": (estimate(EYE, float("nan")), "its learnt is not between 0 and 1"),
    "too cold": (estimate(EYE, temperature=1e-9), "its temperature is not between 0.1 and 64"),
    "temperature is nan": (estimate(EYE, temperature=float("nan")), "its temperature is not between 0.1 and 64"),
    "deviation above 1": (estimate(EYE, 0.5, 1.0, 1.5), "its rate deviation is not between 0 and 1"),
    "deviation is nan": (estimate(EYE, 0.5, 1.0, float("nan")), "its rate deviation is not between 0 and 1"),
    "learnt is missing": (
        RecordDict({"noise matrix": ArrayRecord({"noise matrix": Array(np.eye(2))})}),
        "its learnt is not between 0 and 1",
    ),
    "another record": (RecordDict({"noise matrix": ConfigRecord({})}), "it has no noise matrix"),
    "two": (RecordDict({"noise matrix": ArrayRecord({"a": Array(np.eye(2))})}), "it has no noise matrix"),
    "junk": (
        RecordDict({"noise matrix": ArrayRecord({"noise matrix": Array("f8", (2, 2), "numpy.ndarray", b"junk")})}),
        "its noise matrix cannot be read",
    ),
}


def fitted(matrix: torch.Tensor, learnt: float = 0.0, temperature: float | None = 1.0) -> RecordDict:
    return estimate(matrix, learnt, temperature)


THREE = torch.eye(3, dtype=torch.float64)
ONE_CLASS = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.4, 0.0, 0.6]], dtype=torch.float64)
NOT_FITTED = {
    "scores of one class alone": (fitted(ONE_CLASS), "its noise matrix has no rate that can be fitted"),
    "of one label alone": (fitted(torch.lerp(THREE, THREE.roll(1, 0), 0.4)), "its noise matrix is no pattern"),
    "no noise": (fitted(THREE), "its noise matrix has no rate that can be fitted"),
    "all are wrong": (fitted(flat_pattern(3)), "its noise matrix has no rate that can be fitted"),
    "no temperature": (fitted(torch.lerp(THREE, flat_pattern(3), 0.3), 0.0, None), "it brings no noise that was"),
    "learnt already": (fitted(torch.lerp(THREE, flat_pattern(3), 0.3), 0.5), "it brings no noise that was"),
    "nothing": (RecordDict(), "it brings no noise that was"),
}


@pytest.mark.parametrize("name", sorted(NOT_FITTED))
def test_a_site_adds_up_no_scores_for_a_noise_that_singles_out_a_class(name: str) -> None:
    """Of a class with one sample, the sum would be that sample's score."""
    content, sentence = NOT_FITTED[name]
    with pytest.raises(ValueError, match=f"^{sentence}"):
        get_fitted_noise(content, classes=3)
    for rate in (1e-3, 0.3, 0.7):
        held_out = torch.lerp(THREE, noise_pattern(100 * torch.eye(3) + 40 * torch.eye(3).roll(1, 0)), rate)
        assert get_fitted_noise(fitted(held_out), classes=3).rate == pytest.approx(rate)


@pytest.mark.parametrize("name", sorted(BAD_NOISE))
def test_a_site_refuses_a_wrong_estimate_and_goes_on_alone(name: str) -> None:
    content, sentence = BAD_NOISE[name]
    with pytest.raises(ValueError, match=f"^{sentence}"):
        get_noise(content, classes=2)
    noise, reason = SiteGate().noise(content, classes=2)
    assert noise is None
    assert reason.startswith(f"the coordinator's estimate was refused: {sentence}")


def test_an_estimate_arrives_as_it_was_sent() -> None:
    found = get_noise(estimate(EYE, 0.25, 1.5, 0.125), classes=2)
    assert found is not None
    assert (found.matrix.tolist(), found.learnt, found.temperature) == (EYE.tolist(), 0.25, 1.5)
    assert found.rate_deviation == 0.125
    of_before = estimate(EYE, 0.25, 1.5)
    del of_before["noise"]["rate deviation"]  # type: ignore[union-attr]
    assert getattr(get_noise(of_before, classes=2), "rate_deviation", None) == 0
    assert get_noise(RecordDict(), classes=2) is None
    doubt, pattern = get_noise_facts(put_noise_facts(RecordDict(), 0.125, EYE.flip(0)), classes=2)
    assert (doubt, pattern.tolist()) == (0.125, EYE.flip(0).tolist())
    for wrong in (float("nan"), -1.0):
        with pytest.raises(ValueError, match="its mean doubt is not between 0 and 1"):
            get_noise_facts(put_noise_facts(RecordDict(), wrong, EYE.flip(0)), classes=2)
    for matrix in (2 * EYE, torch.eye(3, dtype=torch.float64), EYE):
        with pytest.raises(ValueError, match="its noise matrix"):
            get_noise_facts(put_noise_facts(RecordDict(), 0.5, matrix), classes=2)
    with pytest.raises(ValueError, match="it has no noise matrix"):
        get_noise_facts(RecordDict(), classes=2)


def test_a_wrong_estimate_changes_no_list(local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator says of every label that it comes from another class."""
    from rofl.federation import noise_exchange

    alone = Federation(settings(), tmp_path / "alone", answer=silent("query.noise", clients=(0, 1, 2)))
    alone.finish(local)
    wrong = LabelNoise(2 * torch.eye(10, dtype=torch.float64), 0.0)
    monkeypatch.setattr(noise_exchange, "noise_of_sums", lambda *sums: wrong)
    federation = Federation(settings(), tmp_path / "sites")
    assert federation.finish(local) == {0, 1, 2}
    assert all(rows == alone.lists()[client] for client, rows in federation.lists().items())
    reason = "the coordinator's estimate was refused: a row of its noise matrix does not sum to 1"
    assert federation.said[0] == [f"The label noise is estimated from this site's labels alone: {reason}."]
    assert read_log(tmp_path / "sites" / "log-0")[-2].facts == {"reason": reason}


# --- a site's policy ---


@pytest.mark.parametrize("masks", [False, True])
def test_a_site_that_sends_no_counts_estimates_alone_and_says_so(masks: bool, local: Path, tmp_path: Path) -> None:
    policy = SitePolicy(send_suspects=False, subsetting=True, masks="any")
    federation = Federation(settings(), tmp_path / "sites", masks, policies={1: policy})
    assert federation.finish(local) == {0, 1, 2}
    reason = "its policy says send_suspects = false"
    assert federation.said == {
        0: [],
        1: [f"The label noise is estimated from this site's labels alone: {reason}."],
        2: [],
    }
    entries = read_log(tmp_path / "sites" / "log-1")
    assert [each.facts["kind"] for each in entries if each.event == "withheld"][:2] == ["noise", "sure"]
    without = Federation(settings(), tmp_path / "others", answer=silent("query.noise"))
    without.finish(local)
    assert all(same(federation.lists()[client], without.lists()[client]) for client in (0, 2))
    alone = Federation(settings(), tmp_path / "alone", answer=silent("query.noise", clients=(0, 1, 2)))
    alone.finish(local)
    assert same(federation.lists()[1], alone.lists()[1])


def test_sums_are_zeros_where_the_policy_says_so(scans: Path) -> None:  # noqa: F811
    site = guarded(scans, send_suspects=False)
    chosen = site.settings()
    site.ask("train", chosen)
    sums = decode_predictions(site.ask("query.noise", chosen), classes=3, declared=0)
    assert (sums.samples, sums.doubt) == (0, 0)
    plain = encode_request(RoundRequest(chosen.toml(), 1), site.state(chosen))
    request = put_noise_facts(plain, 0.5, flat_pattern(3))
    sure, held_out = decode_sure(site.app(Message(request, 2, "query.sure"), site.context).content, 0, flat_pattern(2))
    assert (sure, held_out.samples) == (SureSums(0, 0), 0)
    request = put_noise(plain, LabelNoise(torch.lerp(torch.eye(3).double(), flat_pattern(3), 0.25), 0.0, 1.0))
    assert decode_scores(site.app(Message(request, 2, "query.scores"), site.context).content, 0).samples == 0


# --- a coordinator that is killed ---


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize(("step", "client"), [("query.sure", 0), ("query.finish", 0), ("query.finish", 2)])
def test_a_coordinator_that_is_killed_on_the_way_goes_on_with_the_same_estimate(
    step: str, client: int, masks: bool, local: Path, tmp_path: Path
) -> None:
    def kill(message: Message, who: int) -> RecordDict | None:
        if (message.metadata.message_type, who) == (step, client):
            raise Killed
        return None

    federation = Federation(settings(), tmp_path / "sites", masks, kill)
    with pytest.raises(Killed):
        federation.finish(local)
    federation.answer = lambda message, client: None
    assert federation.finish(local) == {0, 1, 2}
    assert equal_lists(federation, local) == [0, 1, 2]
    assert federation.kinds.count("query.noise") == SITES  # it was not asked for again


def test_the_sums_outlive_the_coordinator_and_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "farewells.json"
    FinalReports(path).add_predictions(PredictionSums(TABLE, 1.25), [0, 2])
    held_out = sum_held_out(torch.tensor([0, 1, 1]), torch.tensor([[0.75, 0.25]] * 3), flat_pattern(2))
    rounded = (held_out.table * 2**32).round() / 2**32
    FinalReports(path).add_sure(SureSums(4, 1), held_out)
    FinalReports(path).add_scores(ScoreSums(torch.tensor(DISCOUNTS), 6))
    found = FinalReports(path)
    assert found.held_out is not None
    assert found.scores is not None
    assert (found.held_out.table.tolist(), found.held_out.samples) == (rounded.tolist(), 3)
    assert (found.scores.scores.tolist(), found.scores.samples) == (list(DISCOUNTS), 6)
    assert found.predictions is not None
    assert (found.predictions.counts.tolist(), found.predictions.doubt) == (TABLE.tolist(), 1.25)
    assert (found.counted, found.sure) == ({0, 2}, SureSums(4, 1))
    facts = json.loads(path.read_text())
    none = {"samples": 3, "table": [[1.0]]}
    wrong = (("doubt", -1.0), ("sure", [70, 1]), ("predictions", [[1, 2]]), ("counted", 7), ("held_out", none))
    for name, value in (*wrong, ("scores", {"samples": 1, "sums": [2.0]})):
        path.write_text(json.dumps({**facts, "noise": {**facts["noise"], name: value}}))
        with pytest.raises(UserError, match="is damaged"):
            FinalReports(path)
    del facts["noise"]  # as an earlier version wrote it
    path.write_text(json.dumps(facts))
    assert FinalReports(path).predictions is None


def test_the_site_declares_what_it_counts() -> None:
    """A site with held-out samples counts all its labels, as the audit does, and no more than it declared."""
    chosen = settings(data__validation_share=0.25)
    federated, _ = load_inputs(chosen, None)
    client = PartitionedData().client(
        RoundRequest(chosen.toml()),
        Context(run_id=1, node_id=1, node_config={"partition-id": 1}, state=RecordDict(), run_config={}),
    )
    sums = client.sum_predictions(client.initial_state)
    assert sums.samples == len(federated.client_rows[1]) == len(client.federated.labels)
