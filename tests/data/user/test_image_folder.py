import unicodedata

import pytest

from rofl.data.user import image_folder
from rofl.errors import UserError
from tests.data.user import places


def found(root):
    return [(entry.client, entry.label, entry.id, entry.test) for entry in image_folder.read_image_folder(root).samples]


def refused(root) -> str:
    with pytest.raises(UserError) as caught:
        image_folder.read_image_folder(root)
    assert "\n" not in str(caught.value)
    return caught.value.sentence


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_a_folder_per_client_with_a_folder_per_class(tmp_path):
    touch(tmp_path, "a/x/1.png", "a/y/2.jpg", "b/x/1.png")
    assert found(tmp_path) == [
        ("a", "x", "a/x/1.png", False),
        ("a", "y", "a/y/2.jpg", False),
        ("b", "x", "b/x/1.png", False),
    ]
    assert image_folder.read_image_folder(tmp_path).samples[0].content == tmp_path / "a/x/1.png"


def test_a_folder_per_class_has_no_clients(tmp_path):
    touch(tmp_path, "x/1.png", "y/2.png")
    assert found(tmp_path) == [(None, "x", "x/1.png", False), (None, "y", "y/2.png", False)]


@pytest.mark.parametrize("suffix", ["jpg", "jpeg", "png", "bmp", "gif", "tif", "tiff", "webp", "JPG", "Png", "TIFF"])
def test_every_suffix_in_any_case(tmp_path, suffix):
    touch(tmp_path, f"x/1.{suffix}")
    assert len(found(tmp_path)) == 1


def test_files_of_operating_systems_are_not_data(tmp_path):
    touch(
        tmp_path,
        *("a/x/1.png", ".git/x/1.png", "__MACOSX/a/x/._1.png", "a/.DS_Store", "a/x/.hidden.png", "a/x/Thumbs.db"),
        *("a/x/notes.txt", "desktop.ini", "README.md", "a/x/1.png.part"),
    )
    assert [name for _, _, name, _ in found(tmp_path)] == ["a/x/1.png"]
    assert image_folder.read_image_folder(tmp_path).notes == []


@pytest.mark.parametrize("with_clients", [True, False])
@pytest.mark.parametrize("name", ["test", "Test"])
def test_a_folder_test_at_the_top_is_the_test_part(tmp_path, with_clients, name):
    touch(tmp_path, "a/x/1.png" if with_clients else "x/1.png", f"{name}/x/2.png", f"{name}/y/3.png")
    assert [(client, label, test) for client, label, _, test in found(tmp_path)] == [
        ("a" if with_clients else None, "x", False),
        (None, "x", True),
        (None, "y", True),
    ]


def test_a_class_may_be_called_test(tmp_path):
    touch(tmp_path, "control/1.png", "test/2.png")
    assert [(label, test) for _, label, _, test in found(tmp_path)] == [("control", False), ("test", False)]


@pytest.mark.parametrize("below", ["", "site/"])
def test_train_and_test_side_by_side(tmp_path, below):
    touch(tmp_path, f"train/{below}x/1.png", f"train/{below}y/1.png", f"test/{below}x/2.png")
    client = "site" if below else None
    assert [(each[0], each[1], each[3]) for each in found(tmp_path)] == [
        (client, "x", False),
        (client, "y", False),
        (None, "x", True),
    ]


@pytest.mark.parametrize("name", ["val", "valid", "Validation"])
def test_a_validation_folder_beside_train_is_the_test_part(tmp_path, name):
    touch(tmp_path, "train/x/1.png", "train/y/1.png", f"{name}/x/2.png")
    assert [(client, label, test) for client, label, _, test in found(tmp_path)] == [
        (None, "x", False),
        (None, "y", False),
        (None, "x", True),
    ]


def test_a_validation_folder_beside_train_and_test_is_left_out_and_told(tmp_path):
    touch(tmp_path, "train/x/1.png", "train/y/1.png", "test/x/2.png", "val/x/3.png")
    assert [(label, name, test) for _, label, name, test in found(tmp_path)] == [
        ("x", "train/x/1.png", False),
        ("y", "train/y/1.png", False),
        ("x", "test/x/2.png", True),
    ]
    notes = image_folder.read_image_folder(tmp_path).notes
    assert notes == ["The folder val is not used: the folder test is the test part."]


@pytest.mark.parametrize("names", [["train", "north"], ["val", "north"], ["val", "valid"]])
def test_clients_may_be_called_train_or_val(tmp_path, names):
    touch(tmp_path, *(f"{name}/x/1.png" for name in names))
    assert [(client, test) for client, _, _, test in found(tmp_path)] == [(name, False) for name in sorted(names)]


def test_classes_may_be_called_train_or_val(tmp_path):
    touch(tmp_path, "train/1.png", "bus/2.png")
    assert [label for _, label, *_ in found(tmp_path)] == ["bus", "train"]


def test_names_are_stripped_and_of_one_form(tmp_path):
    touch(tmp_path, " a /x /1.png", "a/x/2.png", f"a/{unicodedata.normalize('NFD', 'Bär')}/3.png", "a/Bär/4.png")
    assert {(client, label) for client, label, *_ in found(tmp_path)} == {("a", "x"), ("a", "Bär")}


def test_empty_classes_and_clients_are_told(tmp_path):
    touch(tmp_path, "a/x/1.png", "b/x/1.png")
    (tmp_path / "b" / "y").mkdir()
    (tmp_path / "c").mkdir()
    assert image_folder.read_image_folder(tmp_path).notes == ["No images are in c, b/y."]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["x/1.txt"], "There are no images in {root}."),
        ([], "There are no images in {root}."),
        (["1.png"], "The image 1.png in {root} is in no class folder."),
        (["1.png", "x/1.png"], "The image 1.png in {root} is in no class folder."),
        (["a/x/1.png", "y/2.png"], "Images lie at two depths in {root}: y/2.png, but a/x/1.png."),
        (["a/x/deep/1.png"], "The image a/x/deep/1.png in {root} is nested too deeply."),
        (
            ["train/1.png", "test/2.png"],
            "The folders test, train in {root} hold images but no class folders, so none has a label.",
        ),
        (["test/x/1.png"], "All images in {root} are in its folder test; there is nothing to train with."),
    ],
)
def test_other_shapes_are_told_in_one_sentence(tmp_path, names, sentence):
    assert refused(touch(tmp_path, *names)) == sentence.format(root=tmp_path)


@pytest.mark.parametrize("target", ["elsewhere", "data/b", "nothing"])
def test_links_are_refused_wherever_they_lead(tmp_path, target):
    touch(tmp_path / "elsewhere", "x/1.png")
    touch(tmp_path / "data", "b/x/2.png")
    (tmp_path / "data" / "a").symlink_to(tmp_path / target)
    assert refused(tmp_path / "data") == f"{tmp_path / 'data' / 'a'} is a link, and links are not followed."


def test_the_folder_itself_may_be_a_link(tmp_path):
    touch(tmp_path / "data", "b/x/2.png")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert len(found(tmp_path / "link")) == 1


def test_names_that_are_no_text_become_one(tmp_path):
    import os

    touch(tmp_path, "x/1.png")
    os.rename(tmp_path / "x" / "1.png", os.fsencode(tmp_path / "x") + b"/\xff.png")
    entry = image_folder.read_image_folder(tmp_path).samples[0]
    assert entry.id == "x/?.png"
    assert entry.content.exists()


def test_two_hundred_classes(tmp_path):
    touch(tmp_path, *(f"{n}/1.png" for n in range(200)))
    assert len({label for _, label, *_ in found(tmp_path)}) == 200


def test_write_folder_is_what_the_other_tests_think(tmp_path):
    assert len(found(places.write_folder(tmp_path))) == 30
