import pytest
import torch

from rofl.data import load_dataset
from rofl.data.sources import clothing1m
from rofl.errors import UserError
from tests.data import pictures


@pytest.fixture(params=["", "annotations"])
def place(request) -> str:
    """Where the text files lie below the folder of the set."""
    return request.param


@pytest.fixture
def folder(tmp_path, place):
    pictures.write_clothing1m(tmp_path / "clothing1m", annotations=place)
    return tmp_path / "clothing1m"


def refused(folder) -> UserError:
    with pytest.raises(UserError) as caught:
        clothing1m.load_clothing1m(folder)
    assert "\n" not in caught.value.sentence
    return caught.value


def edit(folder, place, name, change) -> None:
    path = folder / place / name
    path.write_text(change(path.read_text()))


def test_the_published_layout_is_read(tmp_path, place):
    noisy = pictures.write_clothing1m(tmp_path / "clothing1m", annotations=place)
    images = load_dataset("clothing1m", tmp_path)
    assert (images.name, images.shape, images.truth_known) == ("clothing1m", (3, 224, 224), False)
    assert (len(images.train), len(images.test), len(images.validation[0])) == (12, 6, 4)
    keys = (tmp_path / "clothing1m" / place / "noisy_train_key_list.txt").read_text().split()
    assert [images.train.path(row) for row in range(12)] == [str(tmp_path / "clothing1m" / key) for key in keys]
    assert images.train_labels.tolist() == [noisy[key] for key in keys]
    assert images.test_labels.tolist() == [(5 * n + len("clean_test")) % 14 for n in range(6)]
    assert images.validation[1].tolist() == [(5 * n + len("clean_val")) % 14 for n in range(4)]


def test_images_are_256_wide_until_a_window_is_cut_out_and_mirrored(folder):
    images = clothing1m.load_clothing1m(folder)
    pixels = images.train[torch.tensor([0, 11])]
    assert pixels.shape == (2, 3, 256, 256)
    assert images.transform(pixels).shape == (2, 3, 224, 224)
    assert images.transform.flip
    assert images.transform.mean == (0.485, 0.456, 0.406)  # ImageNet's, as the published weights expect
    assert images.transform.std == (0.229, 0.224, 0.225)


def test_held_out_images_are_the_clean_ones_for_validation(folder):
    held = clothing1m.load_clothing1m(folder).hold_out(4)
    assert len(held.train) == 12
    assert [held.test.path(row) for row in range(4)] == [
        str(folder / key) for key in _keys(folder, "clean_val_key_list.txt")
    ]


def _keys(folder, name) -> list[str]:
    return next(folder.rglob(name)).read_text().split()


def test_the_classes_have_their_english_names(folder, place):
    assert clothing1m.load_clothing1m(folder).classes == clothing1m.CLASSES
    assert len(set(clothing1m.CLASSES)) == 14
    names = [f"Class {n}" for n in range(14)]
    (folder / place / "category_names_eng.txt").write_text("\n".join(names) + "\n")
    assert clothing1m.load_clothing1m(folder).classes == tuple(names)
    (folder / place / "category_names_eng.txt").write_text("\n".join(names[:13]))
    assert refused(folder).sentence.endswith("category_names_eng.txt has 13 names, not 14.")


def test_an_absent_folder_is_told_with_whom_to_ask(tmp_path):
    error = refused(tmp_path / "clothing1m")
    assert error.sentence == f"Clothing1M is not in {tmp_path / 'clothing1m'}."
    assert "ask its authors" in error.hint
    assert str(tmp_path / "clothing1m") in error.hint


@pytest.mark.parametrize(
    "name",
    [
        *("noisy_label_kv.txt", "clean_label_kv.txt"),
        *("noisy_train_key_list.txt", "clean_val_key_list.txt", "clean_test_key_list.txt"),
    ],
)
def test_an_absent_or_empty_list_is_named(folder, place, name):
    if name.endswith("list.txt"):
        edit(folder, place, name, lambda text: "")
        assert refused(folder).sentence == f"{name} in {folder} is empty."
    (folder / place / name).unlink()
    error = refused(folder)
    assert error.sentence.startswith(f"{name} is neither in {folder} nor in")
    assert "authors" in error.hint


@pytest.mark.parametrize("name", ["noisy_train", "clean_val", "clean_test"])
def test_a_key_without_a_label_is_named(folder, place, name):
    edit(folder, place, f"{name}_key_list.txt", lambda text: text + "images/0/00/1,2.jpg\n")
    assert refused(folder).sentence == f"images/0/00/1,2.jpg of {name}_key_list.txt has no label."


@pytest.mark.parametrize("line", ["a,b.jpg 14", "a,b.jpg -1", "a,b.jpg x", "a,b.jpg", "7", "a,b.jpg 1.0"])
@pytest.mark.parametrize("name", ["noisy_label_kv.txt", "clean_label_kv.txt"])
def test_a_line_without_a_label_that_exists_is_named(folder, place, name, line):
    edit(folder, place, name, lambda text: text.partition("\n")[0] + f"\n{line}\n" + text)
    assert refused(folder).sentence == f"Line 2 of {folder / place / name} is not a key and a label of 0..13."


def test_windows_line_ends_do_no_harm(folder, place):
    expected = clothing1m.load_clothing1m(folder)
    for path in (folder / place).glob("*.txt"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    found = clothing1m.load_clothing1m(folder)
    assert torch.equal(found.train_labels, expected.train_labels)
    assert found.train.path(3) == expected.train.path(3)


@pytest.mark.parametrize(
    ("part", "row"), [("noisy_train", 0), ("noisy_train", -1), ("noisy_train", 5), ("clean_test", -1)]
)
def test_images_that_were_not_unpacked_are_noticed(folder, part, row):
    key = _keys(folder, f"{part}_key_list.txt")[row]
    (folder / key).unlink()
    error = refused(folder)
    assert error.sentence == f"{key} of {part}_key_list.txt is not in {folder}."
    assert "0.tar" in error.hint


def test_a_single_image_is_enough(tmp_path):
    pictures.write_clothing1m(tmp_path, train=1, val=1, test=1)
    assert len(clothing1m.load_clothing1m(tmp_path).train) == 1
