import pytest
import torch

from rofl.data.user import UserSource, columns, load_user_data, table_listing
from rofl.errors import UserError
from tests.data.user.places import write_csv, write_table


def test_special_columns_are_no_features(tmp_path):
    write_csv(tmp_path / "t.csv", [("id", "x", "label", "client", "part"), ("p1", "2", " a ", "c", "test")])
    listing = table_listing.read_table(tmp_path / "t.csv", columns.read_columns(tmp_path / "t.csv"))
    assert listing.features == ("x",)
    entry = listing.samples[0]
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


def test_decimal_commas_are_numbers_where_semicolons_separate(tmp_path):
    """As spreadsheets write them in many countries; beside texts, a comma stays what it is."""
    lines = [f"{row},5;{'NA' if row == 3 else row};a,{row % 2};{'x' if row % 2 else 'y'}" for row in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["weight;age;code;label", *lines]))
    images = load_user_data(UserSource(str(tmp_path / "t.csv")))
    weight, age, code = images.encoder.columns
    assert (weight.kind, age.kind, code.kind) == ("number", "number", "category")
    assert code.values == ("a,0", "a,1")
    (tmp_path / "commas.csv").write_text("weight,label\n" + "".join(f'"{row},5",{row % 2}\n' for row in range(20)))
    assert load_user_data(UserSource(str(tmp_path / "commas.csv"))).encoder.columns[0].kind == "category"
