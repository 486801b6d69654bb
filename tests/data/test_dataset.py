from dataclasses import replace

import pytest
import torch

from rofl.data import Dataset, Transform
from rofl.errors import UserError


@pytest.fixture
def images() -> Dataset:
    return Dataset(
        name="toy",
        classes=("a", "b"),
        train=torch.arange(5 * 2 * 3 * 4, dtype=torch.uint8).view(5, 2, 3, 4),
        train_labels=torch.tensor([0, 1, 0, 1, 1]),
        test=torch.zeros(3, 2, 3, 4, dtype=torch.uint8),
        test_labels=torch.tensor([1, 0, 1]),
        transform=Transform((0.5, 0.5), (0.5, 0.5)),
    )


def test_the_shape_is_channels_height_width(images):
    assert images.shape == (2, 3, 4)


def test_the_first_images_come_with_their_labels_and_without_a_copy(images):
    some = images.first(2, 1)
    assert (len(some.train), some.train_labels.tolist()) == (2, [0, 1])
    assert (len(some.test), some.test_labels.tolist()) == (1, [1])
    assert some.train.data_ptr() == images.train.data_ptr()
    assert (some.name, some.classes, some.transform) == (images.name, images.classes, images.transform)


@pytest.mark.parametrize(("train", "test"), [(None, None), (100, 100)])
def test_none_or_more_than_there_are_means_all(images, train, test):
    some = images.first(train, test)
    assert torch.equal(some.train, images.train)
    assert torch.equal(some.test, images.test)
    assert len(some.train_labels) == 5
    assert len(some.test_labels) == 3


def test_held_out_images_leave_the_training_set_and_replace_the_test_set(images):
    held = images.hold_out(2)
    assert torch.equal(torch.cat([held.train, held.test]), images.train)
    assert (held.train_labels.tolist(), held.test_labels.tolist()) == ([0, 1, 0], [1, 1])


def test_holding_out_nothing_changes_nothing(images):
    assert images.hold_out(0) is images


@pytest.mark.parametrize("count", [5, 6])
def test_holding_out_everything_is_the_users_to_mend(images, count):
    with pytest.raises(UserError, match=f"{count} images cannot be set aside: there are 5"):
        images.hold_out(count)


def test_the_shape_is_the_windows_where_there_is_one(images):
    assert replace(images, transform=Transform((0.5, 0.5), (0.5, 0.5), window=2)).shape == (2, 2, 2)


def test_a_validation_part_of_its_own_is_taken_before_training_images(images):
    own = (torch.arange(4 * 2 * 3 * 4, dtype=torch.uint8).view(4, 2, 3, 4), torch.tensor([1, 1, 0, 1]))
    held = replace(images, validation=own).hold_out(3)
    assert torch.equal(held.test, own[0][:3])
    assert held.test_labels.tolist() == [1, 1, 0]
    assert torch.equal(held.train, images.train)
    with pytest.raises(UserError, match="5 images cannot be set aside: toy has 4 for validation"):
        replace(images, validation=own).hold_out(5)


def test_a_validation_part_is_checked_like_the_others(images):
    with pytest.raises(UserError, match="toy has 3 images and 2 labels"):
        replace(images, validation=(images.test, torch.tensor([0, 1])))
    with pytest.raises(UserError, match=r"toy: labels must lie in 0\.\.1"):
        replace(images, validation=(images.test, torch.tensor([0, 1, 2])))


def test_truth_is_known_and_there_is_nothing_to_note_unless_it_is_said(images):
    assert (images.truth_known, images.note, images.validation) == (True, "", None)
