"""Benchmarks: what they compare, equal steps, rankings, and the leaderboard from run folders as they lie on disk."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import rofl
from benchmarks import leaderboard
from rofl.methods import METHODS
from rofl.methods.fedavg import FedAvg
from rofl.report import write_benchmark_page
from rofl.report.ranking_picture import ranking_svg
from rofl.reproduce import BenchmarkPlan, Leaderboard, benchmark, benchmark_rows, make_benchmark_plan
from rofl.reproduce.benchmark_files import benchmark_markdown, write_benchmark_files
from rofl.reproduce.benchmark_tables import BENCHMARKS, benchmark_settings
from rofl.reproduce.cell_usage import USAGE_FILE, read_usage, recorded_usage
from rofl.reproduce.equal_budget import gradient_passes, with_equal_steps
from rofl.reproduce.leaderboard import collect_leaderboard, last_accuracy
from rofl.reproduce.ranking import critical_difference, rank_methods
from rofl.reproduce.run_cache import RunCache
from rofl.training.records import NoiseRecord, RoundRecord, RunSummary
from rofl.training.run_dir import RunDir
from tests.report.reading import Page

HOSTILE = "<img src=x onerror=alert(1)></script>"
PASSES = {"coteaching": 2, "fedlsr": 2, "fedfixer": 6, "fedfixer-1": 2}  # all others: 1


@dataclass(frozen=True)
class Thrice(FedAvg):
    """Trains as plain does, three times over."""

    def client_update(self, net, server_state, client_state, data, ctx):
        for _ in range(2):
            super().client_update(net, server_state, client_state, data, ctx)
        return super().client_update(net, server_state, client_state, data, ctx)


# --- plans ---


def test_the_settings_are_those_of_the_field() -> None:
    noise = ["clean", "symmetric 0.2", "symmetric 0.4", "symmetric 0.6", "pair 0.2", "pair 0.45", "instance 0.4"]
    clients = ["rho 1 tau 0.5", "rho 1 tau 0.5 Dirichlet 0.3", "symmetric 0.4 Dirichlet 0.3"]
    assert list(benchmark_settings("noise", "mnist")) == noise
    assert list(benchmark_settings("clients", "cifar10")) == clients
    assert list(benchmark_settings("all", "cifar10")) == [*noise, "CIFAR-10N worse", *clients]
    plan = make_benchmark_plan("clients", cells=["plain"], seeds=1)
    first, second, third = (runs[0] for runs in plan.runs.values())
    assert first.noise.text == second.noise.text == "redraw 0.5 to 1"
    assert (first.data.partition, second.data.partition, second.data.alpha) == ("iid", "dirichlet", 0.3)
    assert (third.noise.text, third.data.alpha) == ("symmetric 0.4", 0.3)


def test_every_method_of_the_package_is_compared() -> None:
    assert {*METHODS, "plain+gce", "plain+sce", "plain+elr", "plain+mixup", "fedfixer-1"} == set(benchmark_rows())
    plan = make_benchmark_plan("noise", cells=["plain+gce", "fedfixer-1", "clean"], seeds=2)
    gce, fixer = plan.runs.values()
    assert [run.seed for run in gce] == [0, 1]
    assert (gce[0].method["loss"], fixer[0].method["inner_steps"]) == ("gce", 1)


def test_seeds_come_before_settings_and_settings_before_methods() -> None:
    plan = make_benchmark_plan("noise", cells=["plain", "fedprox", "clean", "pair 0.2"], seeds=2)
    order = [(run.seed, run.noise.kind, run.method_name) for run in plan.experiments()]
    assert order == [
        (seed, kind, name) for seed in (0, 1) for kind in ("symmetric", "pair") for name in ("plain", "fedprox")
    ]
    assert plan.experiments(timed=True) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "nosie"}, "There is no benchmark 'nosie'. Try: 'noise'"),
        ({"cells": ["plan"]}, "There is no method or setting of the benchmark all 'plan'. Try: 'plain'"),
        ({"cells": ["no.such:Method"]}, "cannot be imported"),
        ({"cells": ["pair 0.3"]}, "There is no method or setting of the benchmark all 'pair 0.3'."),
        ({"cells": ["CIFAR-10N worse"], "scale": "lite", "data": "mnist"}, "There is no method or setting"),
        ({"data": "cifar10"}, "The scale tiny is on the embedded digits, not on cifar10."),
        ({"data": "imagenet", "scale": "lite"}, "There is no data set of benchmarks 'imagenet'."),
    ],
)
def test_a_wrong_name_is_one_sentence(arguments, words) -> None:
    with pytest.raises(rofl.UserError) as error:
        make_benchmark_plan(**arguments)
    assert words in str(error.value)


@pytest.mark.parametrize(("scale", "rounds", "width"), [("lite", 80, 0.5), ("medium", 200, 0.5), ("paper", 1000, 1)])
def test_larger_scales_have_their_own_network_and_rounds(scale, rounds, width) -> None:
    plan = make_benchmark_plan("noise", scale, cells=["plain", "coteaching", "CIFAR-10N worse"], seeds=1)
    plain, teaching = (runs[0] for runs in plan.runs.values())
    assert (plain.data.name, plain.noise.kind, plain.rounds, plain.model.width) == ("cifar10", "human", rounds, width)
    assert teaching.rounds == rounds // 2
    assert plan.name == "noise-cifar10"


# --- equal steps ---


@pytest.mark.parametrize("row", benchmark_rows())
def test_a_method_has_as_many_gradient_steps_as_plain_at_most(row) -> None:
    plan = make_benchmark_plan("noise", cells=[row, "symmetric 0.4"], seeds=1)
    ((run,),) = plan.runs.values()
    passes = PASSES.get(row, 1)
    assert run.rounds == 20 // passes
    assert gradient_passes(run) == passes


def test_rounds_that_a_method_counts_shrink_with_its_rounds() -> None:
    plan = make_benchmark_plan("noise", cells=["fedfixer", "coteaching", "symmetric 0.4"], seeds=1)
    teaching, fixer = (runs[0] for runs in plan.runs.values())
    assert (fixer.rounds, fixer.method["start"], fixer.method["beta_ramp"]) == (3, 1, 1)
    assert (teaching.rounds, teaching.method["warmup"]) == (10, 5)


def test_a_method_from_elsewhere_cannot_have_more_steps_by_saying_nothing() -> None:
    name = f"{__name__}:Thrice"
    plan = make_benchmark_plan("noise", cells=["plain", name, "clean"], seeds=1)
    plain, thrice = (runs[0] for runs in plan.runs.values())
    assert (plain.rounds, thrice.rounds, gradient_passes(thrice)) == (20, 6, 3)
    assert with_equal_steps(plain) is plain


# --- ranking ---


def test_ranks_are_those_counted_by_hand() -> None:
    values = {"a": {"x": 90.0, "y": 50.0}, "b": {"x": 80.0, "y": 70.0}, "c": {"x": 80.0, "y": 60.0}, "d": {"x": 99.0}}
    ranking = rank_methods(values, ["x", "y"])
    assert [(method.name, method.ranks) for method in ranking.methods] == [
        ("b", (2.5, 1.0)),
        ("a", (1.0, 3.0)),
        ("c", (2.5, 2.0)),
    ]
    assert (ranking.left_out, ranking.settings) == (("d",), ("x", "y"))
    assert ranking.critical_difference == pytest.approx(2.343 * np.sqrt(3 * 4 / 12), abs=2e-3)  # Demsar's q for 3
    assert all(map(ranking.is_tied_with_best, ranking.methods))
    assert ranking.p_value is not None
    assert 0 < ranking.p_value <= 1


def test_ranks_agree_with_a_count_of_wins_over_all_others() -> None:
    table = np.random.default_rng(0).integers(0, 6, (7, 9)).astype(float)
    values = {f"m{i}": {f"s{j}": table[i, j] for j in range(9)} for i in range(7)}
    ranking = rank_methods(values, [f"s{j}" for j in range(9)])
    for method in ranking.methods:
        i = int(method.name[1:])
        slow = [
            1 + sum(other > mine for other in column) + (sum(other == mine for other in column) - 1) / 2
            for column, mine in zip(table.T, table[i], strict=True)
        ]
        assert list(method.ranks) == slow
    means = [method.mean for method in ranking.methods]
    assert means == sorted(means)
    assert sum(means) == pytest.approx(7 * 8 / 2)


def test_a_method_that_always_loses_is_not_tied_with_the_best() -> None:
    names = [f"m{number}" for number in range(6)]
    values = {name: {f"s{j}": 90.0 - 5 * number for j in range(12)} for number, name in enumerate(names)}
    ranking = rank_methods(values, [f"s{j}" for j in range(12)])
    assert ranking.p_value is not None
    assert ranking.p_value < 1e-6
    assert [method.name for method in ranking.methods] == names
    assert [ranking.is_tied_with_best(method) for method in ranking.methods] == [True, True, True, False, False, False]


def test_too_little_to_test_gives_no_difference() -> None:
    assert critical_difference(2, 10) is critical_difference(5, 1) is None
    one = rank_methods({"a": {"x": 1.0}}, ["x"])
    assert (one.p_value, one.critical_difference, len(one.methods)) == (None, None, 1)
    assert rank_methods({}, []).methods == ()
    same = rank_methods({name: {"x": 5.0, "y": 5.0} for name in "abc"}, ["x", "y"])
    assert [method.mean for method in same.methods] == [2, 2, 2]
    assert same.p_value is None


# --- the leaderboard ---


def finish(run_dir: RunDir, run: rofl.Experiment, accuracies: list[float], seconds: float, share: float | None) -> None:
    """A finished cell, as a run leaves it."""
    run_dir.write_experiment(run)
    for index, accuracy in enumerate(accuracies, start=1):
        run_dir.append_history(RoundRecord(round=index, seconds=50.0 if index == 1 else seconds, accuracy=accuracy))
    run_dir.write_summary(
        RunSummary(
            name=run.name,
            method=run.method_name,
            dataset=run.data.name,
            noise=NoiseRecord(),
            rounds=run.rounds,
            seed=run.seed,
            test_accuracy=0.0,
            best_accuracy=None,
            seconds=10.0,
            seconds_per_round=0.5,
            bytes_up=run.rounds * 400,
            bytes_down=run.rounds * 600,
            digest="",
        )
    )
    if share is not None:
        (run_dir.path / USAGE_FILE).write_text(json.dumps({"memory": 7_000_000, "core_share": share}))


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> BenchmarkPlan:
    methods, tmp_path = ["plain", "coteaching", "fedprox", "rofl"], tmp_path_factory.mktemp("benchmark")
    return make_benchmark_plan("noise", cells=[*methods, "clean", "pair 0.45"], seeds=2, out=tmp_path)


@pytest.fixture(scope="module")
def board(plan: BenchmarkPlan) -> Leaderboard:
    """Plain at 1 s a round, co-teaching at 3 s and half the rounds, fedprox on a busy machine; rofl lacks a setting."""
    cache = RunCache(plan.cells_dir)
    for (row, column), runs in plan.runs.items():
        for run in runs:
            level = {"plain": 50.0, "coteaching": 70.0, "fedprox": 60.0, "rofl": 80.0}[row] + run.seed
            rounds = [level + index / 10 for index in range(run.rounds)]
            if (row, column) != ("rofl", "clean"):
                slow, share = {"coteaching": (3.0, 1.0), "fedprox": (4.0, 0.25)}.get(row, (1.0, None))
                finish(cache.find(run), run, rounds, slow, share)
    return collect_leaderboard(plan, cache, {cache.find(plan.runs["rofl", "clean"][0]).path: "its disk is full"})


def test_accuracy_is_the_mean_of_the_last_fifth() -> None:
    history = [RoundRecord(round=index, accuracy=float(index)) for index in range(1, 21)]
    assert last_accuracy(history) == (17 + 18 + 19 + 20) / 4
    assert last_accuracy(history[:3]) == 3
    unseen = RoundRecord(round=21)
    assert last_accuracy([*history, *([unseen] * 5)]) == 20
    assert last_accuracy([unseen]) is None


def test_equal_time_counts_the_rounds_that_plains_time_allows(board: Leaderboard) -> None:
    costs = {cost.name: (cost.rounds, cost.rounds_in_time, cost.round_seconds) for cost in board.costs}
    assert costs["plain"] == (20, 20, 1.0)
    assert costs["coteaching"] == (10, 6, 3.0)  # 20 s are 6 rounds of 3
    assert costs["fedprox"] == (20, 20, 1.0)  # 4 s with a quarter of a core
    steps, timed = board.by_steps.cell("coteaching", "clean"), board.by_time.cell("coteaching", "clean")
    assert steps is not None
    assert timed is not None
    assert steps.values == pytest.approx((70.85, 71.85))  # rounds 9 and 10
    assert timed.values == pytest.approx((70.5, 71.5))  # round 6
    told = {cost.name for cost in board.costs if cost.told_noise}
    assert told == {"coteaching", "rofl"}
    assert {(cost.round_bytes, cost.memory) for cost in board.costs} == {(1000, None), (1000, 7_000_000)}


def test_a_method_that_lacks_a_setting_is_not_ranked(board: Leaderboard) -> None:
    assert [method.name for method in board.steps_ranking.methods] == ["coteaching", "fedprox", "plain"]
    assert board.steps_ranking.left_out == ("rofl",)
    assert board.by_steps.problems == ["its disk is full"]
    assert board.finished == 14


def test_the_files_say_what_the_leaderboard_says(board: Leaderboard) -> None:
    path = write_benchmark_files(board)
    text = path.read_text()
    assert "| coteaching * | 1.0 | 1.0 | 71.3 | 71.3 |" in text
    assert "| coteaching | **71.3 ± 0.7** | 71.3 ± 0.7 |" in text
    assert "| rofl | - | **82.2 ± 0.7** |" in text
    assert "Not ranked, since not in all settings: rofl." in text
    assert "- Not run: its disk is full" in text
    assert "0 to 2 seeds of each cell, 14 of 16 runs" in text
    content = json.loads(path.with_suffix(".json").read_text())
    (row,) = (one for one in content["cells"] if (one["method"], one["setting"]) == ("rofl", "clean"))
    assert row == {
        "method": "rofl",
        "setting": "clean",
        "accuracies": [],
        "accuracies_in_time": [],
        "problem": "its disk is full",
    }
    page = Page(write_benchmark_page(board, path.with_suffix(".html")).read_text())
    for words in ("71.3 ± 0.7", "At equal time", "Not run: its disk is full", "coteaching *", "What a method costs"):
        assert words in page.text


def test_nothing_finished_is_a_page_too(tmp_path: Path) -> None:
    plan = make_benchmark_plan("noise", cells=["plain", "clean"], seeds=2, out=tmp_path)
    board = collect_leaderboard(plan, RunCache(plan.cells_dir), {})
    assert "0 seeds of each cell, 0 of 2 runs" in benchmark_markdown(board)
    assert "Too few methods" in Page(write_benchmark_page(board, plan.out / "empty.html").read_text()).text


def test_names_in_the_picture_are_text_and_methods_are_in_order() -> None:
    values = {name: {f"s{j}": 90.0 - number for j in range(4)} for number, name in enumerate(["a", HOSTILE, "c"])}
    svg = ranking_svg(rank_methods(values, [f"s{j}" for j in range(4)]), HOSTILE)
    assert "<img" not in svg
    assert "</script" not in svg
    places = [svg.index(f">{name}<") for name in ("a", "c")]
    assert places == sorted(places)
    assert svg.count('class="each"') == 12


def test_finished_cells_are_not_run_again(board: Leaderboard, plan: BenchmarkPlan) -> None:
    rows = ["plain", "fedprox"]
    fewer = make_benchmark_plan("noise", cells=[*rows, "clean"], seeds=2, out=plan.out.parent)
    again = benchmark(fewer, jobs=1)  # nothing is started: the cells of the larger plan are there
    assert again.by_steps.cells == tuple(board.by_steps.cell(row, "clean") for row in rows)


def test_what_a_cell_took_is_written_beside_it(tmp_path: Path) -> None:
    with recorded_usage(tmp_path, node="n1"):
        held = np.ones(40_000_000 // 8)
        assert held.sum() == 5_000_000
    usage = read_usage(tmp_path)
    assert usage.node == "n1"
    assert usage.core_share is None or 0 < usage.core_share <= 1
    assert usage.memory is None or 30_000_000 < usage.memory < 200_000_000
    (tmp_path / USAGE_FILE).write_text("{")
    assert read_usage(tmp_path).memory is None


# --- Ray, without Ray ---


@pytest.mark.parametrize(
    ("on", "words"),
    [("spark://here", "--on takes ray or ray://HOST:PORT, not 'spark://here'."), ("ray", "Ray is not installed.")],
)
def test_a_cluster_that_cannot_be_is_one_sentence(plan: BenchmarkPlan, monkeypatch, on, words) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(rofl.UserError) as error:
        benchmark(plan, on=on)
    assert words in str(error.value)


def test_the_list_of_benchmarks_is_what_plans_take() -> None:
    for name in BENCHMARKS:
        assert make_benchmark_plan(name, cells=["plain"], seeds=1).name == name


def test_tables_take_the_place_of_earlier_ones_in_the_page() -> None:
    page = (Path(__file__).parents[2] / leaderboard.PAGE).read_text()
    assert page.count(leaderboard.BEGIN) == page.count(leaderboard.END) == 1
    once = leaderboard.with_tables(page, "| new |\n")
    assert once == leaderboard.with_tables(once, "| new |\n")
    assert f"{leaderboard.BEGIN}\n| new |\n{leaderboard.END}" in once
    assert once.startswith(page.partition(leaderboard.BEGIN)[0])
    assert once.endswith(page.partition(leaderboard.END)[2])
