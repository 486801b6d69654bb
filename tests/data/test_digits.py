from collections import Counter

import pytest
import torch
from sklearn.datasets import load_digits

from rofl.data.sources import digits


@pytest.fixture(scope="module")
def loaded():
    return digits.load_digits()


def test_1437_train_and_360_test(loaded):
    assert loaded.name == "digits"
    assert loaded.train.shape == (1437, 1, 8, 8)
    assert loaded.test.shape == (360, 1, 8, 8)
    assert loaded.train.dtype == loaded.test.dtype == torch.uint8
    assert loaded.train_labels.shape == (1437,)
    assert loaded.test_labels.shape == (360,)
    assert loaded.train_labels.dtype == loaded.test_labels.dtype == torch.int64


def test_every_class_is_in_both_parts(loaded):
    assert loaded.classes == tuple("0123456789")
    assert set(loaded.train_labels.tolist()) == set(loaded.test_labels.tolist()) == set(range(10))


def test_no_image_is_in_both_parts_and_none_is_lost(loaded):
    original = load_digits()
    whole = Counter(
        (tuple(round(value * 255 / 16) for value in image.ravel()), int(label))
        for image, label in zip(original.images, original.target, strict=True)
    )
    parts = [
        Counter((tuple(image.flatten().tolist()), label) for image, label in zip(pixels, labels.tolist(), strict=True))
        for pixels, labels in [(loaded.train, loaded.train_labels), (loaded.test, loaded.test_labels)]
    ]
    assert parts[0] + parts[1] == whole
    assert not parts[0] & parts[1]


def test_the_split_is_always_the_same(loaded):
    again = digits.load_digits()
    assert torch.equal(again.train, loaded.train)
    assert again.test_labels[:10].tolist() == [6, 3, 1, 8, 6, 5, 8, 3, 6, 4]


def test_the_transform_centres_the_training_images(loaded):
    inputs = loaded.transform(loaded.train)
    assert float(inputs.mean()) == pytest.approx(0, abs=0.01)
    assert float(inputs.std()) == pytest.approx(1, abs=0.01)
    assert not loaded.transform.flip  # a mirrored 2 is no 2
