import shutil

import pytest
from PIL import Image

from rofl.data.user import UserSource, check_user_data
from rofl.errors import UserError
from tests.data.user.places import picture, save, write_arrays, write_folder, write_table


@pytest.fixture
def photos(tmp_path):
    return write_folder(tmp_path / "photos")


def test_sound_data(photos):
    found = check_user_data(UserSource(str(photos)))
    assert (found.kind, found.test_part) == ("images", "split off")
    assert found.samples == {"train": 24, "test": 6}
    assert list(found.clients.items()) == [("site 2", 12), ("site 10", 12)]
    assert found.classes == {"cat": 8, "dog": 8, "ox": 8}
    assert found.test_classes == {"cat": 2, "dog": 2, "ox": 2}
    assert (found.sizes, found.modes) == ({"8 x 8": 30}, {"L": 30})
    assert found.shorter_side == {"smallest": 8, "median": 8, "largest": 8}
    assert found.becomes == {"side": 8, "channels": 1}
    assert all(groups == [] for groups in found.duplicates.values())
    assert (found.unreadable, found.classes_of_one_client, found.notes) == ({}, [], [])
    assert found.clients_with_few_samples == []


def test_odd_things_are_found(photos):
    save(photos / "tiny" / "yak" / "1.png", picture(2, 800))
    save(photos / "tiny" / "cat" / "1.png", picture(2, 801))
    (photos / "tiny" / "cat" / "bad.png").write_bytes(b"no")
    Image.new("RGB", (30, 12), "blue").save(photos / "tiny" / "cat" / "blue.png")
    found = check_user_data(UserSource(str(photos)))
    assert found.clients_with_few_samples == ["tiny"]
    assert found.classes_of_one_client == ["yak"]
    assert found.unreadable == {"tiny/cat/bad.png": "not an image"}
    assert found.modes == {"L": 32, "RGB": 1}
    assert found.sizes["30 x 12"] == 1
    assert found.shorter_side == {"smallest": 8, "median": 8, "largest": 12}


def test_duplicates_within_and_between(photos):
    def copy(source, target):
        (photos / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photos / source, photos / target)

    copy("site 2/cat/0.png", "site 2/cat/again.png")
    copy("site 2/dog/1.png", "site 10/ox/wrong.png")
    copy("site 2/ox/2.png", "test/ox/seen.png")
    save(photos / "test" / "cat" / "a.png", picture(1, 900))
    copy("test/cat/a.png", "test/cat/b.png")
    found = check_user_data(UserSource(str(photos)))
    assert found.test_part == "given"
    assert {name: [sorted(group) for group in groups] for name, groups in found.duplicates.items()} == {
        "within_train": [
            ["site 2/cat/0.png", "site 2/cat/again.png"],
            ["site 10/ox/wrong.png", "site 2/dog/1.png"],
        ],
        "within_test": [["test/cat/a.png", "test/cat/b.png"]],
        "between_train_and_test": [["site 2/ox/2.png", "test/ox/seen.png"]],
        "with_different_labels": [["site 10/ox/wrong.png", "site 2/dog/1.png"]],
    }


def test_arrays_and_tables_too(tmp_path):
    found = check_user_data(UserSource(str(write_arrays(tmp_path / "a.npz"))))
    assert (found.sizes, found.clients) == ({"8 x 8": 30}, {"site 2": 12, "site 10": 12})
    found = check_user_data(UserSource(str(write_table(tmp_path / "t.csv"))))
    assert (found.kind, found.columns, found.sizes) == ("table", 4, None)


def test_clients_that_are_not_named(tmp_path):
    found = check_user_data(write_folder(tmp_path / "photos", with_clients=False))
    assert (found.clients, found.classes_of_one_client) == ({}, [])


def test_data_that_cannot_be_used_is_an_error(tmp_path):
    with pytest.raises(UserError):
        check_user_data(UserSource(str(tmp_path)))
