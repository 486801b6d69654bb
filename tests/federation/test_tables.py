"""Tables, texts and sites with one class in a federation: what leaves, what is agreed on, and that it learns."""

import json
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import Context, RecordDict

from rofl.data import user
from rofl.data.user.shared_columns import agree_on_columns, describe_columns, parse_columns
from rofl.data.user.table_columns import CategoryColumn, NumberColumn
from rofl.data.user.table_encoder import TableEncoder
from rofl.errors import UserError
from rofl.federation.negotiate import negotiate
from rofl.federation.protocol import RoundRequest
from rofl.federation.site_data import LocalData
from rofl.federation.site_info import SiteInfo
from rofl.training.network_choice import network_at_sites
from tests.data.user import places


def context(client: int = 0) -> Context:
    return Context(run_id=1, node_id=1, node_config={"partition-id": client}, state=RecordDict(), run_config={})


def write_patients(path: Path, shift: float, only: str = "", extra: bool = False, count: int = 40) -> Path:
    """Rows of a table: the class follows from dose and drug; one patient has a drug of his own."""
    rows: list[list[object]] = [["label", "dose", "drug", *(["room"] if extra else [])]]
    for number in range(count):
        kind = only or ("ill" if number % 2 else "well")
        drug = "secret drug" if number == 7 else ("b" if kind == "ill" else "a")
        dose = "" if number == 9 else f"{shift + (number % 5) + (8 if kind == 'ill' else 0):.2f}"
        rows.append([kind, dose, drug, *([number] if extra else [])])
    places.write_csv(path, rows)
    return path


def site(path: Path, name: str, fewest: int = 5, tells: bool = True) -> LocalData:
    return LocalData(name=name, source=user.UserSource(str(path)), fewest_rows=fewest, tells_columns=tells)


def test_tables_are_encoded_alike_and_only_facts_about_many_rows_leave(tmp_path: Path) -> None:
    sites = [
        site(write_patients(tmp_path / "north.csv", 100), "north"),
        site(write_patients(tmp_path / "east.csv", 102, extra=True), "east"),
        site(write_patients(tmp_path / "south.csv", 101, only="well"), "south"),  # one class
    ]
    greetings = [each.describe(RoundRequest(""), context()) for each in sites]
    sent = json.dumps([each.fields() for each in greetings])
    assert "secret drug" not in sent
    assert "dose" in sent
    assert greetings == [SiteInfo.decode(each.encode()) for each in greetings]
    assert [each.classes for each in greetings] == [("ill", "well"), ("ill", "well"), ("well",)]
    chosen = negotiate(greetings, {"rounds": 1, "method.epochs": 1})
    agreed = parse_columns(chosen.data.columns)
    assert isinstance(agreed, TableEncoder)
    assert agreed.names == ("dose", "drug")  # room is at one site only
    assert (chosen.data.classes, chosen.model.name) == (("ill", "well"), "mlp")
    assert network_at_sites(chosen).shape == (3, 1, 1)
    request, shapes = RoundRequest(chosen.toml()), set()
    for number, each in enumerate(sites):
        client = each.client(request, context(number))
        update, _ = client.train(client.initial_state, 1, {})
        shapes.add(tuple(tuple(value.shape) for value in update.model.values()))
        assert client.federated.images.train.shape[1:] == (3, 1, 1)
        assert client.federated.images.train.abs().max() < 10
        assert update.weight > 0
    assert len(shapes) == 1
    east = sites[1].client(request, context(1)).federated.images
    assert "Columns that are not agreed on were left out: room." in east.note
    assert [column.name for column in east.encoder.used] == ["dose", "drug"]  # type: ignore[union-attr]


def number(name: str, mean: float, scale: float = 1.0) -> TableEncoder:
    return TableEncoder(columns=(NumberColumn(name=name, mean=mean, scale=scale),))


def test_one_site_cannot_move_the_columns_far() -> None:
    honest = [number("age", 50, 10), number("age", 54, 12)]
    agreed = agree_on_columns([*honest, number("age", 1e300, 1e-300)])
    assert agreed.columns == (NumberColumn(name="age", mean=54, scale=10),)  # type: ignore[union-attr]
    assert agree_on_columns([*honest, number("evil", 0)]).names == ("age",)
    text = TableEncoder(columns=(CategoryColumn(name="age", values=("old",)),))
    assert agree_on_columns([*honest, text]).columns == (NumberColumn(name="age", mean=52, scale=11),)  # type: ignore
    with pytest.raises(UserError, match="no column in common"):
        agree_on_columns([number("a", 0), number("b", 0)])


def test_a_mean_of_few_numbers_and_a_rare_text_do_not_leave() -> None:
    rows = [("1.234567", "x")] * 3 + [("", "x")] * 8 + [("", "y")] * 2
    encoder = TableEncoder.fit(["a", "b"], rows, range(len(rows)))
    assert describe_columns(encoder, ["a", "b"], rows, 10).model_dump()["columns"] == (
        {"kind": "skipped", "name": "a"},
        {"kind": "category", "name": "b", "values": ("x",)},
    )
    allowed = describe_columns(encoder, ["a", "b"], rows, 2).columns[0]  # type: ignore[union-attr]
    assert allowed == NumberColumn(name="a", mean=1.23, scale=1.0)


def test_what_a_site_does_not_say_the_coordinator_may_declare(tmp_path: Path) -> None:
    sites = [site(write_patients(tmp_path / f"{name}.csv", 100), name, tells=False) for name in ("north", "east")]
    greetings = [each.describe(RoundRequest(""), context()) for each in sites]
    assert all("dose" not in each.columns for each in greetings)
    with pytest.raises(UserError, match="no column in common"):
        negotiate(greetings, {})
    declared = number("dose", 104.0, 4.0).model_dump_json()
    chosen = negotiate(greetings, {"rounds": 1, "data.columns": declared})
    client = sites[0].client(RoundRequest(chosen.toml()), context())
    assert client.federated.images.train.shape[1:] == (1, 1, 1)


def read_label(data: LocalData, column: CategoryColumn | NumberColumn) -> list[int]:
    """Declare a column that singles out a patient, and a model that predicts the first class of him alone."""
    chosen = negotiate([data.load()], {"data.columns": TableEncoder(columns=(column,)).model_dump_json()})
    chosen = chosen.model_copy(update={"model": chosen.model.model_copy(update={"name": "linear"})})
    client = data.client(RoundRequest(chosen.toml()), context())
    state = client.initial_state
    weights = next(value for value in state.model.values() if value.dim() == 2)
    bias = next(value for value in state.model.values() if value.dim() == 1)
    weights[0], weights[1], bias[0], bias[1] = 1.0, 0.0, 0.0, 0.5
    return client.sum_predictions(state).counts[0].tolist()  # of the first class as predicted: the classes as given


@pytest.mark.parametrize(
    "column", [CategoryColumn(name="drug", values=("secret drug",)), NumberColumn(name="reward", mean=0, scale=1)]
)
def test_a_column_that_singles_out_a_patient_tells_nothing_of_him(
    tmp_path: Path, column: CategoryColumn | NumberColumn
) -> None:
    rows = [["label", "dose", "drug", "reward"]]
    for number in range(40):
        kind = "ill" if number % 2 else "well"
        rows.append([kind, str(number), "secret drug" if number == 7 else kind[0], "1000" if number == 7 else ""])
    places.write_csv(tmp_path / "north.csv", rows)
    assert sum(read_label(site(tmp_path / "north.csv", "north", fewest=1), column)) == 1  # his label, also in a sum
    assert sum(read_label(site(tmp_path / "north.csv", "north"), column)) == 0


def test_texts_need_no_agreement(tmp_path: Path) -> None:
    rows = [["label", "text"], *([["good", "fine and well"], ["bad", "broken and ill"]] * 15)]
    places.write_csv(tmp_path / "notes.csv", rows)
    sites = [site(tmp_path / "notes.csv", name) for name in ("north", "east")]
    greetings = [each.describe(RoundRequest(""), context()) for each in sites]
    assert "fine" not in greetings[0].columns
    chosen = negotiate(greetings, {"rounds": 1, "method.epochs": 1})
    assert chosen.model.name == "text"
    client = sites[0].client(RoundRequest(chosen.toml()), context())
    assert client.train(client.initial_state, 1, {})[0].weight == 24


def test_forms_that_do_not_fit_are_said() -> None:
    image, table = SiteInfo(0, "north", 40, 8, 1, ("a", "b")), SiteInfo(1, "east", 40, classes=("a",), columns="{}")
    with pytest.raises(UserError, match=r"Half of the sites have tables or texts .east., and the others images"):
        negotiate([image, table], {})
    assert negotiate([image, image, table], {}).data.columns == ""
    one = SiteInfo(0, "north", 40, 8, 1, ("a",))
    with pytest.raises(UserError, match="All sites have the same one class, 'a'; two are needed"):
        negotiate([one, one], {})
