"""Data sets from Python objects."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rofl.config.schema import Experiment
from rofl.data import Dataset
from rofl.data.federated import load_federated
from rofl.data.in_memory.load_object import as_dataset
from rofl.data.transforms import Identity
from rofl.errors import UserError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (20, 9, 8, 3), dtype=np.uint8)
GREY = PIXELS[:, :, :, 0]
LABELS = np.arange(20) % 4
OWNERS = ["site 10", "site 2"] * 10


def everything(data: Dataset) -> tuple[torch.Tensor, list[str]]:
    """All samples in the order of the arrays, and their classes."""
    rows = [int(name) for name in (*data.ids, *data.test_ids)]
    labels = [*data.train_labels.tolist(), *data.test_labels.tolist()]
    order = np.argsort(rows)
    return torch.cat([data.train, data.test])[order], [data.classes[labels[place]] for place in order]


@pytest.mark.parametrize(
    "images",
    [PIXELS, torch.from_numpy(PIXELS), torch.from_numpy(PIXELS).permute(0, 3, 1, 2), PIXELS.transpose(0, 3, 1, 2)],
    ids=["array, channels last", "tensor, channels last", "tensor, channels first", "array, channels first"],
)
def test_every_layout_gives_the_same_pixels(images):
    data = Dataset.from_arrays(images, LABELS)
    pixels, labels = everything(data)
    assert data.shape == (3, 9, 8)
    assert torch.equal(pixels, torch.from_numpy(PIXELS).permute(0, 3, 1, 2))
    assert labels == [str(label) for label in LABELS]
    assert pixels.dtype == torch.uint8


def test_where_both_layouts_fit_an_array_is_channels_last_and_a_tensor_channels_first():
    images = PIXELS[:, :3, :, :]  # (20, 3, 8, 3)
    assert Dataset.from_arrays(images, LABELS).shape == (3, 3, 8)
    assert Dataset.from_arrays(torch.from_numpy(images), LABELS).shape == (3, 8, 3)


def test_grey_images_get_a_channel():
    for images in (GREY, GREY[:, :, :, None], GREY[:, None], torch.from_numpy(GREY)):
        assert torch.equal(everything(Dataset.from_arrays(images, LABELS))[0], torch.from_numpy(GREY)[:, None])


def test_memory_that_may_not_be_written_to_is_copied():
    images = GREY.copy()
    images.flags.writeable = False
    assert Dataset.from_arrays(images, LABELS).shape == (1, 9, 8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_a_table_of_numbers_stays_as_it_is(dtype):
    table = (10 * RNG.normal(size=(20, 5))).astype(dtype)
    data = Dataset.from_arrays(table, LABELS)
    assert (data.shape, data.is_table) == ((5, 1, 1), True)
    assert isinstance(data.transform, Identity)
    assert np.array_equal(everything(data)[0][:, :, 0, 0].numpy(), table.astype(np.float32))


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        ([0, 1] * 10, None, ("0", "1")),
        ([10, 9] * 10, None, ("9", "10")),
        (["site 10", "site 2"] * 10, None, ("site 2", "site 10")),
        (np.array([b"a", b"b"] * 10), None, ("a", "b")),
        (np.array(["a", "b"] * 10, dtype=object), None, ("a", "b")),
        (torch.tensor([0, 1] * 10), ["cat", "dog", "ox"], ("cat", "dog", "ox")),
        (["dog", "cat"] * 10, ["ox", "dog", "cat"], ("ox", "dog", "cat")),
        ([True, False] * 10, None, ("0", "1")),
    ],
)
def test_labels_are_numbers_or_texts(labels, classes, expected):
    data = Dataset.from_arrays(GREY, labels, classes=classes)
    assert data.classes == expected
    names = {"True": "1", "False": "0"}
    wanted = [value.decode() if isinstance(value, bytes) else str(value) for value in np.asarray(labels).tolist()]
    if classes and not isinstance(labels, list):
        wanted = [classes[label] for label in labels]
    assert everything(data)[1] == [names.get(value, value) for value in wanted]


def test_owners_are_kept_in_natural_order_and_each_gives_some_for_testing():
    data = Dataset.from_arrays(GREY, LABELS, clients=OWNERS)
    assert data.clients == ("site 2", "site 10")
    assert [data.clients[owner] for owner in data.owners.tolist()] == [OWNERS[int(name)] for name in data.ids]
    assert sorted(OWNERS[int(name)] for name in data.test_ids) == ["site 10"] * 2 + ["site 2"] * 2
    assert Dataset.from_arrays(GREY, LABELS, clients=np.array([11, 2] * 10)).clients == ("2", "11")


def test_a_test_part_of_its_own():
    data = Dataset.from_arrays(GREY[:15], LABELS[:15], test=(GREY[15:], LABELS[15:]), name="mine", truth_known=True)
    assert (data.name, data.truth_known, len(data.train), len(data.test)) == ("mine", True, 15, 5)
    assert torch.equal(data.test[:, 0], torch.from_numpy(GREY[15:]))
    assert data.test_labels.tolist() == LABELS[15:].tolist()
    assert (data.ids[3], data.test_ids[3]) == ("3", "test 3")


def test_a_class_of_the_test_part_only_is_a_class():
    assert Dataset.from_arrays(GREY[:2], [0, 1], test=(GREY[2:4], [1, 2])).classes == ("0", "1", "2")


def test_the_fingerprint_follows_the_content():
    one, same = (Dataset.from_arrays(GREY, LABELS, clients=OWNERS).fingerprint for _ in range(2))
    other = GREY.copy()
    other[3, 3, 3] ^= 1
    assert one == same
    assert (
        len({one, *(Dataset.from_arrays(*each).fingerprint for each in ((other, LABELS), (GREY, LABELS[::-1])))}) == 3
    )


MISTAKES = {
    "scaled": ((GREY / 255 - 0.5, LABELS), {}, "Pixels lie between -0.5 and", "raw pixels"),
    "shape": ((PIXELS[:, :, :, :2], LABELS), {}, "Images have the shape (20, 9, 8, 2).", "(N, H, W)"),
    "one row": ((np.zeros(5), [0] * 5), {}, "Images have the shape (5,).", "(N, H, W)"),
    "none": ((GREY[:0], []), {}, "Images have the shape (0, 9, 8).", "(N, H, W)"),
    "ragged": (([[1.0], [1.0, 2.0]], [0, 1]), {}, "Images are not an array", "(N, H, W)"),
    "nan": ((np.full((4, 2), np.nan), [0, 1] * 2), {}, "numbers that are missing or not finite", "fill"),
    "few labels": ((GREY, LABELS[:5]), {}, "Labels have the shape (5,), and there are 20 images.", ""),
    "soft labels": ((GREY, LABELS / 4), {}, "Labels are float64.", "whole numbers or texts"),
    "objects": ((GREY, np.array([None] * 20)), {}, "Labels are object.", "whole numbers or texts"),
    "empty": ((GREY, ["a", " "] * 10), {}, "Row 1 of the labels is empty.", ""),
    "one class": ((GREY, ["a"] * 20), {}, "There is one class, 'a'; two are needed.", ""),
    "classes": ((GREY, LABELS), {"classes": ["a", "b"]}, "Labels are not among the classes: 2, 3.", ""),
    "other classes": ((GREY, ["a", "c"] * 10), {"classes": ["a", "b"]}, "Labels are not among the classes: c.", ""),
    "same classes": ((GREY, LABELS), {"classes": ["a"] * 4}, "Classes are repeated: a, a, a, a.", "different"),
    "clients": ((GREY, LABELS), {"clients": [1, 2]}, "Clients have the shape (2,)", ""),
    "test size": (
        (GREY, LABELS),
        {"test": (GREY[:, 1:], LABELS)},
        "Test images are (1, 8, 8), and images are (1, 9, 8)",
        "",
    ),
    "test kind": ((GREY, LABELS), {"test": (np.ones((20, 2)), LABELS)}, "Test images have 2 features", ""),
    "test labels": ((GREY, LABELS), {"test": (GREY, LABELS[:1])}, "Test labels have the shape (1,)", ""),
    "holdout": ((GREY, LABELS), {"holdout": 1.0}, "holdout lies between 0 and 1, not 1.0.", "holdout=0.2"),
    "too few": ((GREY[:2], LABELS[:2]), {}, "No sample is left for testing.", "test=(images, labels)"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake):
    arrays, options, sentence, hint = MISTAKES[mistake]
    with pytest.raises(UserError) as caught:
        Dataset.from_arrays(*arrays, **options)
    assert sentence in caught.value.sentence
    assert hint in caught.value.hint
    assert "\n" not in caught.value.sentence


def test_numbers_from_0_to_1_and_16_bits_are_pixels_too():
    bytes_ = Dataset.from_arrays(GREY, LABELS)
    for form in (GREY / 255, GREY.astype(np.float32), GREY.astype(np.int64)):
        assert torch.equal(Dataset.from_arrays(form, LABELS).train, bytes_.train)
    deep = GREY.astype(np.uint16) * 16 + 7  # 12 bits, as scanners write them
    assert torch.equal(Dataset.from_arrays(deep, LABELS).train, bytes_.train)


# --- objects ---


def test_any_object_with_arrays_is_a_data_set(tmp_path):
    expected = Dataset.from_arrays(GREY, LABELS, clients=OWNERS)
    np.savez(tmp_path / "x.npz", images=GREY, labels=LABELS, clients=np.array(OWNERS))
    sources = [
        {"images": GREY, "labels": LABELS, "clients": OWNERS},
        SimpleNamespace(data=torch.from_numpy(GREY), targets=LABELS.tolist(), owners=OWNERS),
    ]
    with np.load(tmp_path / "x.npz") as archive:
        for source in (*sources, archive):
            data = as_dataset(source)
            assert torch.equal(data.train, expected.train)
            assert (data.classes, data.clients, data.fingerprint) == (
                expected.classes,
                expected.clients,
                expected.fingerprint,
            )
            assert torch.equal(data.owners, expected.owners)
    assert as_dataset(expected) is expected


def test_a_data_set_like_those_of_torchvision():
    train, test = (
        SimpleNamespace(data=PIXELS[part], targets=LABELS[part].tolist(), classes=["a", "b", "c", "d"])
        for part in (slice(15), slice(15, 20))
    )
    data = as_dataset(train, test=test, name="toys")
    assert (data.name, data.classes, data.owners) == ("toys", ("a", "b", "c", "d"), None)
    assert (len(data.train), len(data.test)) == (15, 5)
    names = {"test_images": PIXELS[15:], "test_labels": LABELS[15:]}
    same = as_dataset({"data": PIXELS[:15], "targets": LABELS[:15], **names})
    assert torch.equal(same.test, data.test)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ({"labels": LABELS}, "dict has no images."),
        ({"images": GREY}, "dict has no labels."),
        ({"images": GREY, "labels": LABELS, "test_images": GREY}, "dict has no test_labels."),
        (GREY, "ndarray has no images."),
        (3, "int has no images."),
    ],
    ids=["no images", "no labels", "no test labels", "an array", "a number"],
)
def test_an_object_without_arrays_is_refused(source, sentence):
    with pytest.raises(UserError) as caught:
        as_dataset(source)
    assert caught.value.sentence == sentence


def test_pickled_arrays_are_not_read(tmp_path):
    np.savez(tmp_path / "x.npz", images=GREY, labels=np.array([{}] * 20))
    with np.load(tmp_path / "x.npz") as archive, pytest.raises(UserError, match="labels cannot be read"):
        as_dataset(archive)


def test_a_data_set_in_memory_is_distributed_over_its_owners():
    split = Experiment(name="x", clients=2, cohort=2, noise={"ratio": 0.0}).split
    split = replace(split, data=split.data.model_copy(update={"partition": "natural"}))
    federated = load_federated(split, dataset=Dataset.from_arrays(GREY, LABELS, clients=OWNERS))
    assert federated.client_names == ("site 2", "site 10")
    for name, rows in federated.client_views:
        assert {OWNERS[int(federated.images.ids[row])] for row in rows.tolist()} == {name}
