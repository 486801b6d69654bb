import numpy as np
import pytest
import torch

from rofl.data.user import UserSource, columns, load_user_data, table
from rofl.errors import UserError
from tests.data.user.places import write_csv, write_table


def encoded(names, rows, train=None):
    values, notes = table.encode_table(names, rows, range(len(rows)) if train is None else train)
    assert (values.dtype, values.shape[2:]) == (torch.float32, (1, 1))
    return values[:, :, 0, 0], notes


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
        table.encode_table(["remark"], [(f"remark {n}",) for n in range(101)], range(101))


def test_special_columns_are_no_features(tmp_path):
    write_csv(tmp_path / "t.csv", [("id", "x", "label", "client", "part"), ("p1", "2", " a ", "c", "test")])
    listing = table.read_table(tmp_path / "t.csv", columns.read_columns(tmp_path / "t.csv"))
    assert listing.features == ("x",)
    entry = listing.entries[0]
    assert (entry.id, entry.label, entry.client, entry.test, entry.content) == ("p1", "a", "c", True, ("2",))


def test_the_whole_way(tmp_path):
    images = load_user_data(UserSource(str(write_table(tmp_path / "t.csv"))))
    assert (images.shape, images.is_table, images.truth_known) == ((4, 1, 1), True, False)  # weight, 2 colours, height
    assert (images.classes, images.clients) == (("cow", "hen"), ("farm 0", "farm 1"))
    assert (len(images.train), len(images.test)) == (48, 12)
    assert float(images.train[:, 0].mean()) == pytest.approx(0, abs=1e-6)
    assert float(images.train[:, 0].std(correction=0)) == pytest.approx(1, abs=0.02)  # one is missing
    assert images.note == "Replaced by the mean of the column: 1 missing number."
    assert sorted(map(int, images.ids)) != list(range(1, 61))
    assert set(map(int, images.ids)) <= set(range(1, 61))


def test_features_reach_the_network_as_they_are_and_stay_what_they_are(tmp_path):
    images = load_user_data(UserSource(str(write_table(tmp_path / "t.csv"))))
    before = images.train.clone()
    seen = images.transform(images.train[:5], torch.Generator())
    assert torch.equal(seen, before[:5])
    seen += 1
    assert torch.equal(images.train, before)


def test_a_test_table_needs_the_same_columns(tmp_path):
    write_table(tmp_path / "t.csv")
    write_csv(tmp_path / "test.csv", [("label", "weight", "colour"), ("hen", "1", "red")])
    with pytest.raises(UserError, match=r"has other columns than .*: weight, colour, not weight, colour, height"):
        load_user_data(UserSource(str(tmp_path / "t.csv"), str(tmp_path / "test.csv")))
    write_csv(tmp_path / "test.csv", [("label", "weight", "colour", "height"), ("hen", "1", "red", "2")])
    assert len(load_user_data(UserSource(str(tmp_path / "t.csv"), str(tmp_path / "test.csv"))).test) == 1
