import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.data.user import TableEncoder, UserSource, load_for_audit, load_user_data
from rofl.data.user.encoders import encoder_from_json
from rofl.errors import UserError
from tests.data.user.places import write_csv, write_folder, write_table
from tests.naive import table_features


def encoded(names, rows, train=None):
    encoder = TableEncoder.fit(names, rows, range(len(rows)) if train is None else train)
    values = encoder.transform(rows)
    assert (values.dtype, values.shape[2:]) == (torch.float32, (1, 1))
    assert torch.equal(TableEncoder.from_json(encoder.to_json()).transform(rows), values)
    return values[:, :, 0, 0], encoder.notes(rows)


def test_numbers_are_standardised_over_the_training_rows():
    values, notes = encoded(["x"], [("1",), ("2",), ("6",), ("100",)], train=[0, 1, 2])
    assert values[:3, 0].tolist() == pytest.approx(((np.array([1, 2, 6]) - 3) / np.std([1, 2, 6])).tolist(), rel=1e-6)
    assert float(values[3, 0]) == pytest.approx(97 / np.std([1, 2, 6]), rel=1e-6)
    assert notes == []


@pytest.mark.parametrize("gap", ["", "NA", "nan", "NULL", "?", " ", "inf"])
def test_a_missing_number_is_the_mean_and_told(gap):
    values, notes = encoded(["x", "y"], [("1", "1"), (gap, "2"), ("3", "4")])
    assert float(values[1, 0]) == 0
    assert notes == ["Replaced by the mean of the column: 1 missing number."]


def test_a_constant_column_is_zero():
    values, _ = encoded(["x", "y"], [("5", "1"), ("5", "2")])
    assert values[:, 0].tolist() == [0, 0]


def test_categories_become_columns_in_order_and_strange_ones_none():
    rows = [("red",), ("blue",), ("",), ("green",)]
    values, notes = encoded(["colour"], rows, train=[0, 1, 2])
    assert values.tolist() == [[0, 1], [1, 0], [0, 0], [0, 0]]
    assert notes == []


def test_remarks_are_left_out_and_told():
    rows = [(f"remark {n}", str(n)) for n in range(101)]
    values, notes = encoded(["remark", "x"], rows)
    assert values.shape == (101, 1)
    assert notes == ["Columns with more than 100 different texts were left out: remark."]
    assert encoded(["remark", "x"], rows[:100])[0].shape == (100, 101)


def test_a_table_of_remarks_only_is_refused():
    with pytest.raises(UserError, match="no column to learn from"):
        TableEncoder.fit(["remark"], [(f"remark {n}",) for n in range(101)], range(101))


# --- the same numbers as the formulas that were written out before ---

NUMBERS = st.one_of(
    st.integers(-1000, 1000).map(str),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.4g}"),
    st.sampled_from(["", "?"]),
)
TEXTS = st.sampled_from(["red", "blue", "site 2", "site 10", "", "NA", "3"])


@given(data=st.data(), count=st.integers(1, 12))
def test_features_are_those_of_the_naive_twin(data, count):
    columns = data.draw(st.lists(st.sampled_from([NUMBERS, TEXTS, st.just("0.1")]), min_size=1, max_size=4))
    rows = [tuple(data.draw(column) for column in columns) for _ in range(count)]
    train = data.draw(st.lists(st.integers(0, count - 1), min_size=1, unique=True))
    names = [f"c{place}" for place in range(len(columns))]
    expected = np.array(table_features.features(rows, train)).reshape(count, -1)
    if expected.shape[1] == 0:
        with pytest.raises(UserError, match="no column to learn from"):
            TableEncoder.fit(names, rows, train)
        return
    features = TableEncoder.fit(names, rows, train).transform(rows)[:, :, 0, 0].numpy()
    np.testing.assert_allclose(features, expected, rtol=1e-6, atol=1e-6)


def test_the_features_of_a_whole_table_are_those_of_the_naive_twin(tmp_path):
    write_table(tmp_path / "t.csv")
    data = load_user_data(UserSource(str(tmp_path / "t.csv")))
    lines = [line.split(",") for line in (tmp_path / "t.csv").read_text().splitlines()[1:]]
    cells = [tuple(line[2:]) for line in lines]
    train = [int(name) - 1 for name in data.ids]
    expected = np.array(table_features.features(cells, train))
    np.testing.assert_allclose(data.train[:, :, 0, 0].numpy(), expected[train], rtol=1e-6, atol=1e-6)
    test = [int(name) - 1 for name in data.test_ids]
    np.testing.assert_allclose(data.test[:, :, 0, 0].numpy(), expected[test], rtol=1e-6, atol=1e-6)


# --- other tables, by the encoder of a model ---


def farm(path):
    """The encoder of a table with the columns weight, colour and height."""
    return load_user_data(UserSource(str(write_table(path / "t.csv")))).encoder


def audited(path, encoder, *rows):
    write_csv(path / "new.csv", rows)
    return load_for_audit(UserSource(str(path / "new.csv")), ("cow", "hen"), encoder)


def test_a_new_table_is_encoded_as_the_one_before_whatever_its_order(tmp_path):
    encoder = farm(tmp_path)
    data = audited(
        tmp_path, encoder, ("height", "colour", "label", "weight"), ("6", "red", "hen", "2"), ("", "x", "cow", "")
    )
    first = data.train[data.ids.index("1")]
    assert torch.equal(first, encoder.transform([("2", "red", "6")])[0])
    assert first[1:3].flatten().tolist() == [0, 1]
    assert data.encoder == encoder
    assert data.note == "Replaced by the mean of the column: 2 missing numbers."
    assert data.train[data.ids.index("2")].flatten().tolist() == [0, 0, 0, 0]


def test_an_empty_column_is_named_and_not_counted_as_gaps():
    rows = [("", "1"), ("", ""), ("", "2")]
    encoder = TableEncoder.fit(("dose", "age"), rows, [0, 1, 2])
    assert encoder.notes(rows) == [
        "Replaced by the mean of the column: 1 missing number.",
        "Nothing but missing values, which tell nothing: dose.",
    ]
    assert encoder.notes([]) == []


@pytest.mark.parametrize(
    ("head", "row", "sentence"),
    [
        (
            ("label", "weight", "colour"),
            ("hen", "1", "red"),
            "The table lacks columns that the model was trained on: height.",
        ),
        (
            ("label", "weight", "colour", "height", "wings"),
            ("hen", "1", "red", "2", "2"),
            "The table has columns that the model does not know: wings.",
        ),
        (
            ("label", "weight", "colour", "height"),
            ("hen", "heavy", "red", "2"),
            "The column 'weight' holds 'heavy', and the model was trained on numbers there.",
        ),
    ],
    ids=["lacks one", "one more", "a text"],
)
def test_other_columns_are_refused_in_one_sentence(tmp_path, head, row, sentence):
    with pytest.raises(UserError) as caught:
        audited(tmp_path, farm(tmp_path), head, row)
    assert caught.value.sentence == sentence


def test_a_column_that_was_not_used_may_be_missing(tmp_path):
    rows = [(f"remark {n}", str(n)) for n in range(101)]
    encoder = TableEncoder.fit(["remark", "x"], rows, range(101))
    assert encoder.transform([("5",)], ["x"]).tolist() == encoder.transform([("any", "5")]).tolist()


def test_images_for_the_model_of_a_table_are_refused_and_the_other_way_round(tmp_path):
    encoder = farm(tmp_path)
    write_folder(tmp_path / "photos")
    with pytest.raises(UserError, match="has images, and the model was trained on a table"):
        load_for_audit(UserSource(str(tmp_path / "photos")), ("cat", "dog", "ox"), encoder)
    with pytest.raises(UserError, match="is a table, and the model was not trained on one"):
        load_for_audit(UserSource(str(tmp_path / "t.csv")), ("cow", "hen"))


# --- on disk ---


def test_an_encoder_comes_back_to_the_bit(tmp_path):
    encoder = farm(tmp_path)
    again = TableEncoder.from_json(encoder.to_json())
    assert again == encoder
    content = json.loads(encoder.to_json())
    assert content["format"] == 1
    assert [column["kind"] for column in content["columns"]] == ["number", "category", "number"]


def with_change(encoder, change):
    content = json.loads(encoder.to_json())
    change(content)
    return json.dumps(content)


CHANGES = {
    "format": lambda c: c.update(format=2),
    "no columns": lambda c: c.pop("columns"),
    "another key": lambda c: c.update(more=1),
    "scale": lambda c: c["columns"][0].update(scale=0),
    "not finite": lambda c: c["columns"][0].update(mean=math.nan),
    "kind": lambda c: c["columns"][0].update(kind="pickle"),
    "twice": lambda c: c["columns"].append(c["columns"][0]),
    "value twice": lambda c: c["columns"][1].update(values=["red", "red"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_encoder_is_refused(tmp_path, change):
    with pytest.raises(UserError, match=r"The table encoder (is damaged|has format 2; this version reads format 1)"):
        TableEncoder.from_json(with_change(farm(tmp_path), CHANGES[change]))


@pytest.mark.parametrize("text", ["", "[]", "3", "no"])
def test_what_is_no_encoder_is_refused(text):
    with pytest.raises(UserError, match="The table encoder is damaged"):
        TableEncoder.from_json(text)


def test_a_column_of_huge_numbers_is_refused():
    with pytest.raises(UserError, match="The numbers of the column 'x' are too large"):
        TableEncoder.fit(["x"], [("1e308",), ("-1e308",), ("1.5e308",)], range(3))


def test_a_number_far_beyond_all_training_rows_stays_finite() -> None:
    encoder = TableEncoder.fit(["x"], [("1",), ("2",), ("1e300",), ("-1e308",)], range(2))
    by_text = encoder.transform([("1e300",), ("-1e308",)])
    assert by_text.flatten().tolist() == [1e6, -1e6]
    assert torch.equal(by_text, encoder.transform_array(np.array([[1e300], [-1e308]])))


def test_an_encoder_that_is_nested_deeply_is_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="is damaged"):
        encoder_from_json("[" * 100_000)
