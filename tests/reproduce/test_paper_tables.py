"""The paper's tables and figures: its numbers, and what each cell runs. Numbers are copied from paper.tex."""

import functools
import math
from pathlib import Path

import pytest

from rofl.config.schema import Experiment
from rofl.errors import UserError
from rofl.reproduce import PAPER_TABLES, Scale, TableCell, cell_experiment, find_tables, make_plan
from rofl.reproduce.paper_tables import METHOD_NAMES
from rofl.reproduce.scales import substitution_note

SCALES: tuple[Scale, ...] = ("tiny", "lite", "medium", "paper")
NAMES = {
    *("fig1", "fig-tsne", "fig-hyperparameters", "table-cifar10", "table-clothing1m", "table-client-noise"),
    *("table-class-noise", "table-ablation", "table-detection", "table-mnist", "intensity", "covidx"),
    *("table-participants", "table-time"),
}
NOISES = [f"symmetric {ratio}" for ratio in ("0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6")]
NOISES += [f"pair {ratio}" for ratio in ("0.1", "0.2", "0.3", "0.4", "0.45")]
OF_ROW = {
    "Cross Entropy Loss": "plain",
    "Co-teaching": "coteaching",
    "Joint Optimization": "joint",
    "Deep self-learning": "selflearning",
    "Ours": "rofl",
}

# Rows as in the paper: the name, then the numbers in the order of the columns; `-` where the paper prints none.
PRINTED = {
    "table-cifar10": (
        NOISES,
        """
        Cross Entropy Loss | 89.5 81.8 73.1 63.1 54.8 41.9 35.4   83.2 73.7 65.4 56.5 49.5
        Co-teaching        | 89.8 88.5 87.6 86.1 84.4 81.6 57.7   88.4 86.3 73.1 57.5 55.2
        Joint Optimization | 88.4 86.7 85.4 82.8 80.1 76.7 71.2   86.8 86.2 86.0 85.4 83.1
        Ours               | 91.5 91.2 90.8 89.6 88.7 86.4 83.0   90.9 90.5 89.8 89.2 88.8
        """,
    ),
    "table-clothing1m": (
        ["C. L.", "F. L."],
        """
        Cross Entropy Loss | 69.5 70.8
        Co-teaching        | 71.0 71.8
        Joint Optimization | 72.2 73.5
        Deep self-learning | 74.5 73.6
        Ours               | 72.5 76.4
        """,
    ),
    "table-client-noise": (["eta 0", "eta 0.1", "eta 0.2", "eta 0.3", "eta 0.4"], "Ours | 88.7 88.5 88.7 88.7 89.0"),
    "table-class-noise": (["0.1", "0.2", "0.3", "0.4", "0.5", "0.6"], "Ours | 91.1 90.5 89.6 88.6 86.8 83.1"),
    "table-ablation": (
        ["accuracy"],
        """
        no mask + no pseudo-label | 74.5
        mask + no pseudo-label    | 77.8
        no mask + naive           | 74.7
        mask + naive              | 86.7
        mask + global-guided      | 88.7
        """,
    ),
    "table-detection": (
        ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6"],
        """
        Precision | 0.997 0.994 0.989 0.980 0.968 0.944
        Recall    | 0.933 0.937 0.909 0.903 0.892 0.840
        """,
    ),
    "table-mnist": (
        NOISES,
        """
        Cross Entropy Loss | 99.6 98.7 97.4 94.2 88.1 79.2 62.5   98.7 95.6 86.8 69.4 61.6
        Co-teaching        | 99.4 99.4 99.2 99.1 98.9 98.1 96.7   99.3 99.2 99.1 96.6 92.3
        Joint Optimization | 98.1 97.9 97.9 97.3 97.0 97.1 94.1   98.0 97.3 97.3 97.3 97.2
        Ours               | 99.5 99.4 99.3 99.3 99.2 99.1 98.8   99.4 99.4 99.3 99.2 99.1
        """,
    ),
    "intensity": (["as they are", "light 0.5 to 1.5"], "Ours | 88.7 88.4"),
    "covidx": (["C. L.", "F. L."], "Ours | 93.6 93.5"),
    # 10 clients a round are the original setting, whose number stands in the first table.
    "table-participants": (["1", "2", "5", "10", "20", "50", "100"], "Ours | 78.6 85.9 88.2 88.7 89.6 90.1 89.9"),
    "table-time": (
        ["seconds a round"],
        """
        Cross Entropy Loss | -
        Co-teaching        | 45.8
        Joint Optimization | 24.9
        Ours               | 27.8
        """,
    ),
}


def lines(text: str) -> dict[str, list[float | None]]:
    """The rows of a table in the notation above."""
    rows = (line.split("|") for line in text.strip().splitlines())
    return {name.strip(): [None if word == "-" else float(word) for word in rest.split()] for name, rest in rows}


@functools.cache
def of(name: str, row: str, column: str, scale: Scale = "paper", seed: int = 0) -> Experiment:
    """What a cell runs."""
    chosen = cell_experiment(PAPER_TABLES[name], cell_at(name, row, column), scale, seed)
    assert chosen is not None
    return chosen


def cell_at(name: str, row: str, column: str) -> TableCell:
    (found,) = [cell for cell in PAPER_TABLES[name].cells if (cell.row, cell.column) == (row, column)]
    return found


# --- what there is ---


def test_every_table_and_figure_has_a_name() -> None:
    assert PAPER_TABLES.keys() == NAMES
    assert {table.name for table in find_tables("all")} == NAMES
    assert [find_tables(name)[0].name for name in PAPER_TABLES] == list(PAPER_TABLES)
    assert {name: table.name for name, table in PAPER_TABLES.items()} == {name: name for name in PAPER_TABLES}


@pytest.mark.parametrize("name", PRINTED)
def test_the_papers_numbers_are_copied_right(name: str) -> None:
    columns, text = PRINTED[name]
    printed = lines(text)
    assert PAPER_TABLES[name].columns == columns
    assert PAPER_TABLES[name].rows == list(printed)
    found = {row: [cell_at(name, row, column).paper for column in columns] for row in printed}
    assert found == printed


def test_the_federated_half_of_figure_1_is_in_table_1_and_the_rest_is_not_printed() -> None:
    for cell in PAPER_TABLES["fig1"].cells:
        row, _, setting = cell.row.removesuffix(")").partition(" (")
        printed = cell_at("table-cifar10", row, f"symmetric {cell.column}").paper
        assert cell.paper == (printed if setting == "F. L." else None)


def test_pictures_have_no_numbers() -> None:
    assert NAMES - PRINTED.keys() == {"fig1", "fig-tsne", "fig-hyperparameters"}
    for name in ("fig-tsne", "fig-hyperparameters"):
        assert all(cell.paper is None for cell in PAPER_TABLES[name].cells)


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_no_two_cells_stand_at_one_place(name: str) -> None:
    places = [(cell.row, cell.column) for cell in PAPER_TABLES[name].cells]
    assert len(places) == len(set(places))


@pytest.mark.parametrize("name", sorted(NAMES - {"fig-hyperparameters"}))
def test_every_place_of_a_table_has_a_cell(name: str) -> None:
    table = PAPER_TABLES[name]
    assert len(table.cells) == len(table.rows) * len(table.columns)


def test_only_times_are_measured_alone() -> None:
    assert [name for name, table in PAPER_TABLES.items() if table.timed] == ["table-time"]
    assert {cell.measure for table in PAPER_TABLES.values() if not table.timed for cell in table.cells} == {
        *("accuracy", "precision", "recall", "features apart", "weights apart")
    }


# --- what a cell runs ---


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["table-cifar10", "table-mnist"])
def test_row_and_column_name_method_and_noise(name: str, scale: Scale) -> None:
    for cell in PAPER_TABLES[name].cells:
        kind, ratio = cell.column.split()
        chosen = of(name, cell.row, cell.column, scale)
        assert (chosen.noise.kind, chosen.noise.ratio) == (kind, float(ratio))
        assert chosen.method["name"] == cell.method == OF_ROW[cell.row]
        assert (chosen.setting, chosen.noise.per_client, chosen.data.brightness) == ("federated", False, 0)
        assert cell.measure == "accuracy"


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["fig1", "table-clothing1m", "covidx"])
def test_c_l_is_centralized_and_f_l_is_federated(name: str, scale: Scale) -> None:
    for cell in PAPER_TABLES[name].cells:
        chosen = of(name, cell.row, cell.column, scale)
        words = f"{cell.row}, {cell.column}"
        central, federal = "C. L." in words, "F. L." in words
        assert central != federal
        assert (chosen.setting, chosen.clients == 1) == (("centralized", True) if central else ("federated", False))
        assert chosen.method["name"] == OF_ROW[cell.row.partition(" (")[0]]
        if name == "fig1":
            assert (chosen.noise.kind, chosen.noise.ratio) == ("symmetric", float(cell.column))
        if name == "covidx":
            assert chosen.noise.ratio == 0


@pytest.mark.parametrize("scale", SCALES)
def test_centralized_runs_make_as_many_passes_over_the_data(scale: Scale) -> None:
    for name in ("fig1", "table-clothing1m", "covidx"):
        for cell in PAPER_TABLES[name].cells:
            words = (cell.row, cell.column)
            if "C. L." not in ", ".join(words):
                continue
            alone = of(name, *words, scale)
            beside = of(name, *(word.replace("C. L.", "F. L.") for word in words), scale)
            passes = beside.rounds * beside.method["epochs"] * beside.cohort / beside.clients
            assert alone.rounds * alone.method["epochs"] == math.ceil(passes)
            for key in {"t_pl", "start"} & alone.method.keys():
                expected = beside.method[key] * alone.rounds / beside.rounds
                assert alone.method[key] == pytest.approx(expected, abs=0.5)
            if alone.method["name"] == "rofl":
                assert alone.method["pseudo"] == "naive"  # the supplement's centralized form


@pytest.mark.parametrize("scale", SCALES)
def test_the_noise_of_clients_and_classes_is_what_the_column_says(scale: Scale) -> None:
    for cell in PAPER_TABLES["table-client-noise"].cells:
        noise = of("table-client-noise", "Ours", cell.column, scale).noise
        assert (noise.kind, noise.ratio, noise.fully_noisy_class) == ("symmetric", 0.4, False)
        assert f"eta {noise.client_spread:g}" == cell.column
    for cell in PAPER_TABLES["table-class-noise"].cells:
        noise = of("table-class-noise", "Ours", cell.column, scale).noise
        assert (noise.kind, noise.ratio, noise.client_spread, noise.fully_noisy_class) == (
            "symmetric",
            float(cell.column),
            0,
            True,
        )


@pytest.mark.parametrize("scale", SCALES)
def test_the_ablation_switches_what_its_rows_say(scale: Scale) -> None:
    found = {}
    for cell in PAPER_TABLES["table-ablation"].cells:
        chosen = of("table-ablation", cell.row, cell.column, scale)
        assert (chosen.noise.kind, chosen.noise.ratio, chosen.method["name"]) == ("symmetric", 0.4, "rofl")
        found[cell.row] = (chosen.method["mask"], chosen.method["pseudo"])
    assert found == {
        "no mask + no pseudo-label": (False, "none"),
        "mask + no pseudo-label": (True, "none"),
        "no mask + naive": (False, "naive"),
        "mask + naive": (True, "naive"),
        "mask + global-guided": (True, "global"),
    }


@pytest.mark.parametrize("scale", SCALES)
def test_detection_reads_both_measures_off_the_runs_of_table_1(scale: Scale) -> None:
    for cell in PAPER_TABLES["table-detection"].cells:
        assert cell.measure == cell.row.lower()
        same = of("table-cifar10", "Ours", f"symmetric {cell.column}", scale)
        assert of("table-detection", cell.row, cell.column, scale) == same


@pytest.mark.parametrize("scale", SCALES)
def test_the_usual_run_is_shared_by_many_tables(scale: Scale) -> None:
    usual = of("table-cifar10", "Ours", "symmetric 0.4", scale)
    cohort = f"{usual.cohort}"
    for name, row, column in (
        ("fig1", "Ours (F. L.)", "0.4"),
        ("table-client-noise", "Ours", "eta 0"),
        ("table-ablation", "mask + global-guided", "accuracy"),
        ("table-detection", "Recall", "0.4"),
        ("intensity", "Ours", "as they are"),
        ("table-participants", "Ours", cohort),
        ("fig-tsne", "with global centroids", "features apart"),
        ("fig-hyperparameters", "T_pl", "x 1"),
        ("fig-hyperparameters", "lambda_e", "0.8"),
        ("fig-hyperparameters", "lambda_cen", "1"),
        ("fig-hyperparameters", "tau", "0.4"),
        ("fig-hyperparameters", "T", "10"),
    ):
        assert of(name, row, column, scale) == usual, f"{name}, {row}, {column}"


@pytest.mark.parametrize("scale", SCALES)
def test_participants_are_clients_a_round_as_far_as_there_are_clients(scale: Scale) -> None:
    found = {}
    for cell in PAPER_TABLES["table-participants"].cells:
        chosen = cell_experiment(PAPER_TABLES["table-participants"], cell, scale, 0)
        if chosen is not None:
            found[cell.column] = chosen.cohort
    columns = PAPER_TABLES["table-participants"].columns
    wanted = columns if scale in ("medium", "paper") else columns[:5]  # 20 clients
    assert found == {column: int(column) for column in wanted}


@pytest.mark.parametrize("scale", SCALES)
def test_light_global_centroids_and_times(scale: Scale) -> None:
    assert of("intensity", "Ours", "as they are", scale).data.brightness == 0
    assert of("intensity", "Ours", "light 0.5 to 1.5", scale).data.brightness == 0.5
    for column in PAPER_TABLES["fig-tsne"].columns:
        assert of("fig-tsne", "with global centroids", column, scale).method["global_centroids"]
        assert not of("fig-tsne", "without global centroids", column, scale).method["global_centroids"]
        assert cell_at("fig-tsne", "with global centroids", column).measure == column
    for cell in PAPER_TABLES["table-time"].cells:
        chosen = of("table-time", cell.row, cell.column, scale)
        assert (cell.measure, chosen.method["name"]) == ("seconds", OF_ROW[cell.row])
        assert chosen.rounds == 4
        assert chosen.method.get("t_pl", 1) == 1


@pytest.mark.parametrize("scale", SCALES)
def test_one_hyperparameter_changes_at_a_time(scale: Scale) -> None:
    usual = of("table-cifar10", "Ours", "symmetric 0.4", scale)
    keys = {"T_pl": "t_pl", "lambda_e": "lambda_e", "lambda_cen": "lambda_cen", "tau": "tau", "T": "warmup"}
    assert PAPER_TABLES["fig-hyperparameters"].rows == list(keys)
    for cell in PAPER_TABLES["fig-hyperparameters"].cells:
        chosen, key = of("fig-hyperparameters", cell.row, cell.column, scale), keys[cell.row]
        assert {**chosen.model_dump(), "method": {**chosen.method, key: usual.method[key]}} == usual.model_dump()
        if key == "t_pl":
            factor = float(cell.column.removeprefix("x "))
            assert chosen.method["t_pl"] == pytest.approx(max(1, factor * usual.method["t_pl"]), abs=0.5)
        else:
            built = vars(chosen.build_method())
            assert built[key] == float(cell.column)


@pytest.mark.parametrize("scale", SCALES)
def test_the_seed_is_the_seed(scale: Scale) -> None:
    first, other = (of("table-cifar10", "Ours", "pair 0.45", scale, seed) for seed in (0, 7))
    assert (first.seed, other.seed) == (0, 7)
    assert other.model_copy(update={"seed": 0}) == first


# --- the paper's protocol ---

ROUNDS = {"mnist": 100, "cifar10": 1000, "clothing1m": 40}
T_PL = {"mnist": 30, "cifar10": 100, "clothing1m": 5}
RATES = {  # of plain the paper states none; joint's 0 stands for Tanaka's, by noise ratio
    "mnist": {"plain": 0.25, "coteaching": 0.15, "joint": 0.0, "rofl": 0.25},
    "cifar10": {"plain": 0.25, "coteaching": 0.15, "joint": 0.0, "rofl": 0.25},
    "clothing1m": {"plain": 0.01, "coteaching": 0.001, "joint": 8e-4, "selflearning": 0.002, "rofl": 0.01},
}
EVERY = {"plain": 10, "coteaching": 10, "joint": 0, "selflearning": 5, "rofl": 10}  # of Clothing1M


@functools.cache
def protocol() -> list[tuple[str, Experiment]]:
    """Every federated experiment of the three main tables, with its data set."""
    return [
        (table.data, of(name, cell.row, cell.column))
        for name, table in PAPER_TABLES.items()
        for cell in table.cells
        if name in ("table-mnist", "table-cifar10", "table-clothing1m") and cell.column != "C. L."
    ]


def test_all_paper_runs_have_the_papers_federation_and_optimizer() -> None:
    found = protocol()
    assert len(found) == 48 + 48 + 5
    for data, chosen in found:
        method = chosen.method
        assert chosen.data.name == data
        assert (chosen.clients, chosen.cohort, chosen.rounds) == (100, 10, ROUNDS[data])
        assert (chosen.data.partition, chosen.data.train, chosen.data.test) == ("iid", None, None)
        assert (method["batch"], method["epochs"]) == (50, 5)
        assert (method["momentum"], method["weight_decay"]) == (0.5, 1e-4)
        assert method["lr"] == RATES[data][method["name"]]
        assert method["lr_decay_every"] == (EVERY[method["name"]] if data == "clothing1m" else 0)
        assert chosen.model.width == 1
        assert chosen.model.name == ("resnet50" if data == "clothing1m" else "cnn9")
        assert chosen.model.weights == ("imagenet" if data == "clothing1m" else "")


def test_ours_has_the_papers_hyperparameters() -> None:
    for data, chosen in protocol():
        method = chosen.method
        if method["name"] == "rofl":
            assert (method["lambda_cen"], method["lambda_e"], method["t_pl"]) == (1.0, 0.8, T_PL[data])
            assert method["warmup"] == 10
            ratio = 0.3846 if data == "clothing1m" else chosen.noise.ratio
            assert vars(chosen.build_method())["tau"] == ratio
            assert (method["mask"], method["pseudo"], method["global_centroids"]) == (True, "global", True)


def test_the_other_methods_have_the_papers_hyperparameters() -> None:
    seen = set()
    for data, chosen in protocol():
        method, built = chosen.method, vars(chosen.build_method())
        seen.add(method["name"])
        if method["name"] == "coteaching":
            assert method["warmup"] == (5 if data == "clothing1m" else 10)
            assert built["tau"] == (0.3846 if data == "clothing1m" else chosen.noise.ratio)
        if method["name"] == "joint":
            assert (method["alpha"], method["beta"]) == ((2.4 if data == "clothing1m" else 1.2), 0.8)
            assert method["start"] == T_PL[data]  # of CIFAR-10 the paper's own; of the others see docs
            assert built["lr"] > 0
        if method["name"] == "selflearning":
            assert (method["sample"], method["prototypes"]) == (128, 3)
    assert seen == METHOD_NAMES.keys()


def test_covidx_is_at_100_medical_centres() -> None:
    chosen = of("covidx", "Ours", "F. L.")
    assert (chosen.data.name, chosen.clients, chosen.cohort, chosen.noise.ratio) == ("covidx", 100, 10, 0)


# --- the other scales ---


def test_tiny_needs_no_files_and_lite_is_small() -> None:
    for name, table in PAPER_TABLES.items():
        for cell in table.cells:
            tiny, lite = (cell_experiment(table, cell, scale, 0) for scale in ("tiny", "lite"))
            assert (tiny is None) == (lite is None)
            if tiny is None or lite is None:
                continue
            assert (tiny.data.name, tiny.model.name, tiny.clients) == ("digits", "small", 1 if is_alone(cell) else 20)
            assert lite.data.name in ("mnist", "cifar10", "covidx_mini")
            assert lite.data.train == {"mnist": 10_000, "cifar10": 20_000}.get(lite.data.name)
            network = ("cnn5", 0.5) if lite.data.name == "cifar10" else ("cnn9", 0.125)
            assert (lite.model.name, lite.model.width) == network
            if name == "table-clothing1m":
                assert (lite.noise.kind, lite.noise.labels) == ("human", "worse")


def is_alone(cell: TableCell) -> bool:
    return cell.changes.get("setting") == "centralized"


def test_whatever_stands_in_for_the_papers_data_is_told() -> None:
    for table in PAPER_TABLES.values():
        for scale in SCALES:
            chosen = cell_experiment(table, table.cells[0], scale, 0)
            assert chosen is not None
            other = chosen.data.name != table.data or chosen.noise.kind == "human"
            assert bool(substitution_note(scale, table.data)) == other


# --- choosing ---


def chosen_cells(name: str, cells: str) -> set[tuple[str, str]]:
    plan = make_plan(name, "tiny", 1, Path("nowhere"), cells)
    return {(cell.row, cell.column) for _, kept in plan.chosen for cell in kept}


def test_cells_are_chosen_by_row_column_and_method() -> None:
    assert chosen_cells("table-mnist", "Ours") == {("Ours", column) for column in NOISES}
    assert chosen_cells("table-mnist", "rofl") == {("Ours", column) for column in NOISES}
    assert chosen_cells("table-mnist", "ours, PAIR 0.45") == {("Ours", "pair 0.45")}
    assert chosen_cells("table-mnist", "symmetric 0.4,pair 0.45") == {
        (row, column) for row in OF_ROW if row != "Deep self-learning" for column in ("symmetric 0.4", "pair 0.45")
    }
    assert chosen_cells("table-mnist", "joint,Co-teaching,symmetric 0") == {
        ("Joint Optimization", "symmetric 0"),
        ("Co-teaching", "symmetric 0"),
    }
    assert len(chosen_cells("table-mnist", "")) == 48


def test_words_choose_among_all_grids_those_that_know_them() -> None:
    plan = make_plan("all", "tiny", 1, Path("nowhere"), "eta 0.2")
    assert [table.name for table, _ in plan.chosen] == ["table-client-noise"]


def test_an_unknown_grid_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"There is no table or figure 'table-mnits'\. Try: 'table-mnist'"):
        find_tables("table-mnits")


def test_an_unknown_cell_is_told_with_an_example() -> None:
    with pytest.raises(UserError, match=r"No cell of table-mnist is called 'pair 0\.7'") as error:
        make_plan("table-mnist", "tiny", 1, Path("nowhere"), "pair 0.7")
    assert "'symmetric 0'" in error.value.hint


@pytest.mark.parametrize("name", PAPER_TABLES)
def test_every_row_and_every_column_can_be_chosen(name: str) -> None:
    table = PAPER_TABLES[name]
    for row in table.rows:
        assert {place[0] for place in chosen_cells(name, row)} == {row}
    for column in table.columns:
        assert {place[1] for place in chosen_cells(name, column)} == {column}


def test_an_unknown_word_beside_a_known_one_is_told() -> None:
    with pytest.raises(UserError, match=r"pair 0\.7"):
        make_plan("table-mnist", "tiny", 1, Path("nowhere"), "pair 0.4,pair 0.7")


def test_a_plan_runs_shared_cells_once_and_times_alone() -> None:
    plan = make_plan("all", "tiny", 2, Path("out"))
    everything, apart, alone = (plan.experiments(which) for which in (None, False, True))
    assert len(everything) == len(apart) + len(alone) == 2 * 110
    assert {one.method["name"] for one in alone} == {"plain", "coteaching", "joint", "rofl"}
    assert {one.rounds for one in alone} == {4}
    assert {one.seed for one in everything} == {0, 1}
    assert plan.out == Path("out") / "tiny"


def test_a_grid_can_run_on_another_data_set_and_says_so() -> None:
    plan = make_plan("table-ablation", "lite", 1, Path("nowhere"), data="mnist")
    assert {one.data.name for one in plan.experiments()} == {"mnist"}
    (table, cells), original = plan.chosen[0], PAPER_TABLES["table-ablation"]
    assert [(cell.row, cell.paper) for cell in cells] == [(cell.row, cell.paper) for cell in original.cells]
    assert "on MNIST" in table.note
    assert "CIFAR-10" in table.note
    assert plan.name == "table-ablation-mnist"
    assert (
        make_plan("table-mnist", "lite", 1, Path("nowhere"), data="mnist").chosen[0][0] == PAPER_TABLES["table-mnist"]
    )
    with pytest.raises(UserError, match="no data set of the paper 'minst'"):
        make_plan("table-ablation", "lite", 1, Path("nowhere"), data="minst")


FOREIGN = "tests.simulation.toy_plugin:FedProx"  # has no batch size


def test_a_further_method_gets_rows_of_its_own_in_every_table() -> None:
    for table in find_tables("all"):
        ((wider, cells),) = make_plan(table.name, method=FOREIGN, cells=FOREIGN).chosen
        assert wider.cells[: len(table.cells)] == table.cells
        assert {cell.column for cell in cells} == set(table.columns)
        assert {(cell.method, cell.paper) for cell in cells} == {(FOREIGN, None)}
        assert len({(cell.row, cell.column) for cell in cells}) == len(cells)
        assert not [key for cell in cells for key in cell.changes if key.startswith("method.")]
        for cell in cells:
            chosen = cell_experiment(wider, cell, "tiny", seed=0)
            assert chosen is None or chosen.method_name == FOREIGN
    ((_, ablation),) = make_plan("table-ablation", method=FOREIGN, cells=FOREIGN).chosen
    assert [cell.row for cell in ablation] == [FOREIGN]  # its five variants are one to others
    ((_, detection),) = make_plan("table-detection", method=FOREIGN, cells=f"{FOREIGN}: recall").chosen
    assert {cell.measure for cell in detection} == {"recall"}


def test_a_further_method_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be imported"):
        make_plan("table-ablation", method="tests.absent:FedProx")
