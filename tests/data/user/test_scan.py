"""From a path to an image set."""

import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from rofl.data.user import UserSource, load_user_data
from rofl.errors import UserError
from tests.data.user.places import CLASSES, CLIENTS, picture, samples, save, write_arrays, write_csv, write_folder
from tests.data.user.places import write_manifest as manifest


def taken(path, **changes):
    return load_user_data(UserSource(str(path), **changes))


def refused(path, **changes) -> str:
    with pytest.raises(UserError) as caught:
        taken(path, **changes)
    assert "\n" not in str(caught.value)
    return caught.value.sentence


@pytest.fixture
def photos(tmp_path):
    return write_folder(tmp_path / "photos")


def test_all_that_is_known_of_a_folder(photos):
    images = taken(photos)
    assert (images.name, images.classes, images.clients) == ("own", CLASSES, CLIENTS)  # site 2 before site 10
    assert (images.shape, images.truth_known, images.note) == ((1, 8, 8), False, "")
    assert (len(images.train), len(images.test)) == (24, 6)
    assert Counter(images.test_labels.tolist()) == {0: 2, 1: 2, 2: 2}
    assert Counter(images.owners.tolist()) == {0: 12, 1: 12}
    for row, name in enumerate(images.ids):
        client, label, _ = name.split("/")
        assert images.clients[images.owners[row]] == client
        assert images.classes[images.train_labels[row]] == label
        assert (images.train[row, 0].numpy() == np.asarray(Image.open(photos / name))).all()


def test_held_out_samples_are_not_trained_on(photos):
    images = taken(photos)
    train = {bytes(pixels.numpy().tobytes()) for pixels in images.train}
    test = {bytes(pixels.numpy().tobytes()) for pixels in images.test}
    assert train.isdisjoint(test)
    assert len(train | test) == 30
    assert len(taken(photos, holdout=0.5).test) == 16  # 2.5 of each class, 7.5 of each client


def test_folder_manifest_and_arrays_are_the_same_data(photos, tmp_path):
    sets = [taken(photos), taken(manifest(tmp_path / "list.csv")), taken(write_arrays(tmp_path / "a.npz"))]
    lines = (tmp_path / "list.csv").read_text().splitlines()
    (tmp_path / "other.csv").write_text("\n".join([lines[0], *lines[:0:-1]]))
    sets.append(taken(tmp_path / "other.csv"))  # in any order
    for each in sets[1:]:
        assert torch.equal(each.train, sets[0].train)
        assert torch.equal(each.test, sets[0].test)
        assert torch.equal(each.train_labels, sets[0].train_labels)
        assert torch.equal(each.owners, sets[0].owners)
        assert (each.classes, each.clients) == (sets[0].classes, sets[0].clients)


def test_the_order_is_mixed_so_that_the_first_ones_are_a_fair_sample(photos):
    some = taken(photos).first(12, None)
    assert len(set(some.train_labels.tolist())) == 3
    assert len(set(some.owners.tolist())) == 2
    assert len(some.owners) == len(some.ids) == 12


def test_held_out_for_validation_goes_with_names_and_owners(photos):
    whole = taken(photos)
    held = whole.hold_out(5)
    assert held.ids == whole.ids[:-5]
    assert torch.equal(held.owners, whole.owners[:-5])


def test_without_clients_there_are_no_owners(tmp_path):
    images = taken(write_folder(tmp_path / "photos", with_clients=False))
    assert (images.owners, images.clients) == (None, ())
    assert len(images.train) == 24


@pytest.mark.parametrize("place", ["inside", "beside", "part", "arrays"])
def test_a_given_test_part_is_taken_and_nothing_split_off(photos, tmp_path, place):
    pixels = picture(0, 999)
    if place == "inside":
        save(photos / "test" / "dog" / "t.png", pixels)
        images = taken(photos)
    elif place == "beside":
        save(tmp_path / "more" / "dog" / "t.png", pixels)
        images = taken(photos, test_path=str(tmp_path / "more"))
    elif place == "part":
        save(photos / "t.png", pixels)
        rows = [(client, f"photos/{client}/{label}/{name}", label, "train") for client, label, name, _ in samples()]
        write_csv(
            tmp_path / "l.csv", [("client", "path", "label", "part"), *rows, ("?", "photos/t.png", "dog", "test")]
        )
        images = taken(tmp_path / "l.csv")
    else:
        tests = {"test_images": pixels[None], "test_labels": np.array(["dog"])}
        images = taken(write_arrays(tmp_path / "a.npz", **tests))
    assert (len(images.train), len(images.test)) == (30, 1)
    assert (images.test[0, 0].numpy() == pixels).all()
    assert images.test_labels.tolist() == [1]
    assert images.clients == CLIENTS


def test_a_test_part_may_be_of_another_form(photos, tmp_path):
    assert len(taken(photos, test_path=str(write_arrays(tmp_path / "a.npz", clients=None))).test) == 30


def test_two_test_parts_are_one_too_many(photos, tmp_path):
    save(photos / "test" / "dog" / "t.png", picture(0, 1))
    save(tmp_path / "more" / "dog" / "t.png", picture(0, 2))
    assert refused(photos, test_path=str(tmp_path / "more")).startswith("There are two test parts")


def test_a_class_that_only_the_test_part_has_is_left_out_with_a_note(photos):
    save(photos / "test" / "dog" / "t.png", picture(0, 1))
    save(photos / "test" / "yak" / "t.png", picture(0, 2))
    images = taken(photos)
    assert (len(images.test), images.classes) == (1, CLASSES)
    assert images.note == "Left out, since their class is not in the training part: 1 test sample of yak."
    (photos / "test" / "dog" / "t.png").unlink()
    assert refused(photos) == f"No sample of {photos} is left for testing."


def test_broken_images_are_left_out_with_a_note(photos):
    (photos / "site 2" / "cat" / "bad.jpg").write_bytes(b"no")
    (photos / "site 2" / "cat" / "0.png").write_bytes((photos / "site 2" / "cat" / "0.png").read_bytes()[:-30])
    images = taken(photos)
    assert len(images.train) + len(images.test) == 29
    assert images.note == "Left out, since they cannot be read: 2 images, site 2/cat/0.png, site 2/cat/bad.jpg."
    assert images.unreadable[1] == "site 2/cat/bad.jpg: not an image"
    assert not {"site 2/cat/bad.jpg", "site 2/cat/0.png"} & set(images.ids)


def test_a_client_or_class_of_broken_images_only_is_none(photos):
    for path in ("nobody/cat/1.png", "site 2/yak/1.png"):
        (photos / path).parent.mkdir(parents=True)
        (photos / path).write_bytes(b"no")
    images = taken(photos)
    assert (images.clients, images.classes) == (CLIENTS, CLASSES)
    assert images.note.endswith("Clients without a sample to train with: nobody.")


def test_a_client_with_one_sample_stays(photos):
    save(photos / "small" / "cat" / "1.png", picture(0, 7))
    images = taken(photos)
    assert images.clients == (*CLIENTS, "small")
    assert Counter(images.owners.tolist())[2] == 1


@pytest.mark.parametrize("count", [2, 200])
def test_two_or_two_hundred_classes(tmp_path, count):
    for n in range(count):
        for number in range(2):
            save(tmp_path / str(n) / f"{number}.png", picture(n % 3, 10 * n + number))
    images = taken(tmp_path, holdout=0.5)
    assert images.classes == tuple(map(str, range(count)))  # 2 before 10
    assert (len(images.train), len(images.test)) == (count, count)


def test_side_and_channels_can_be_chosen(photos):
    assert taken(photos, side=12, channels=3).shape == (3, 12, 12)


def test_mixed_sizes_and_modes_become_one(photos):
    Image.new("RGBA", (50, 30), "red").save(photos / "site 2" / "cat" / "x.webp")
    Image.new("CMYK", (9, 90)).save(photos / "site 2" / "cat" / "y.jpeg")
    images = taken(photos)
    assert images.shape == (3, 8, 8)
    assert images.note == ""


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("absent", "There is no {path}."),
        ("notes.txt", "{path} is not in a known form."),
        ("empty", "There are no images in {path}."),
        ("one", "All samples in {path} are of one class, 'x'; two are needed."),
        ("broken", "There is no sample to train with in {path}."),
        ("single", "No sample of {path} is left for testing."),
    ],
)
def test_what_cannot_be_used_is_told_in_one_sentence(tmp_path, path, sentence):
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    for n in range(9):
        save(tmp_path / "one" / "x" / f"{n}.png", picture(0, n))
    for label in "xy":
        save(tmp_path / "single" / label / "1.png", picture(0, 1))
        (tmp_path / "broken" / label).mkdir(parents=True)
        (tmp_path / "broken" / label / "1.png").write_bytes(b"no")
    assert refused(tmp_path / path) == sentence.format(path=tmp_path / path)


def test_the_fingerprint_follows_the_content_and_not_the_place(photos, tmp_path):
    source = UserSource(str(photos))
    content = load_user_data(source).fingerprint
    assert load_user_data(replace(source, fingerprint=content, holdout=0.4, side=12)).fingerprint == content
    shutil.copytree(photos, tmp_path / "copy")
    assert taken(tmp_path / "copy").fingerprint == content
    (photos / "site 2" / "cat" / "0.png").rename(photos / "site 2" / "dog" / "zero.png")
    assert "is not what it was" in refused(photos, fingerprint=content)
    shutil.rmtree(photos)
    shutil.copytree(tmp_path / "copy", photos)
    assert taken(photos, fingerprint=content).fingerprint == content
    save(photos / "site 2" / "cat" / "0.png", picture(0, 555))
    assert "is not what it was" in refused(photos, fingerprint=content)
