import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from rofl.data.client_dataset import ClientDataset, batches
from rofl.data.transforms import Transform, center_crop, random_crop, random_flip, random_window
from tests.naive import images


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(*shape: int, low: int = 0) -> torch.Tensor:
    return torch.randint(low, 256, shape, generator=rng(99), dtype=torch.uint8)


PLAIN = Transform(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))


@given(count=st.integers(2, 60), size=st.integers(1, 20), seed=st.integers(0, 1000))
def test_an_epoch_shows_every_sample_once_and_never_one_alone(count, size, seed):
    parts = list(batches(count, size, rng(seed)))
    assert sorted(torch.cat(parts).tolist()) == list(range(count))
    assert all(len(part) >= 2 for part in parts)


@given(count=st.integers(2, 60), size=st.integers(2, 20))
def test_batches_are_full_but_for_the_last_which_may_take_a_left_over_in(count, size):
    *others, last = [len(part) for part in batches(count, size, rng())]
    assert all(length == size for length in others)
    assert last <= size + 1


@pytest.mark.parametrize(
    ("count", "size", "lengths"),
    [
        (1, 50, [2]),
        (2, 50, [2]),
        (2, 2, [2]),
        (3, 2, [3]),
        (5, 2, [2, 3]),
        (50, 50, [50]),
        (51, 50, [51]),
        (52, 50, [50, 2]),
    ],
)
def test_lengths_of_small_epochs(count, size, lengths):
    assert [len(part) for part in batches(count, size, rng())] == lengths


def test_a_single_sample_is_shown_twice_in_one_batch():
    assert [part.tolist() for part in batches(1, 10, rng())] == [[0, 0]]


def test_the_generator_decides_the_order():
    first, again, other = (torch.cat(list(batches(40, 7, rng(seed)))) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_generator_gives_the_next_epoch_another_order():
    shared = rng()
    first, second = (torch.cat(list(batches(40, 7, shared))) for _ in range(2))
    assert not torch.equal(first, second)


def test_batches_leave_the_global_random_state_alone():
    state = torch.get_rng_state()
    list(batches(10, 3, rng()))
    Transform((0.1,), (0.5,), crop=1, flip=True)(noise(2, 1, 4, 4), rng())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_transform_normalises_each_channel():
    pixels = noise(2, 3, 4, 5)
    expected = [images.normalised(image, PLAIN.mean, PLAIN.std) for image in pixels.tolist()]
    assert_close(PLAIN(pixels), torch.tensor(expected))


def test_normalisation_worked_by_hand():
    # 0 -> (0 - 0.5) / 0.25, 255 -> (1 - 0.5) / 0.25
    pixels = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    assert_close(Transform((0.5,), (0.25,))(pixels), torch.tensor([[[[-2.0, 2.0]]]]))


@pytest.mark.parametrize("generator", [None, rng()], ids=["plain", "augmented"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_transform_gives_float32_in_channels_last_and_leaves_its_input(channels, generator):
    pixels = noise(4, channels, 6, 5)
    before = pixels.clone()
    inputs = Transform((0.3,) * channels, (0.4,) * channels, crop=2, flip=True)(pixels, generator)
    assert inputs.dtype == torch.float32
    assert inputs.shape == pixels.shape
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(pixels, before)


def test_without_a_generator_nothing_is_augmented():
    pixels = noise(20, 3, 6, 6)
    augmenting = Transform(PLAIN.mean, PLAIN.std, crop=2, flip=True)
    assert torch.equal(augmenting(pixels), PLAIN(pixels))
    assert not torch.equal(augmenting(pixels, rng()), PLAIN(pixels))


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("crop", [0, 1])
def test_a_transform_augments_as_it_is_told_and_then_normalises(crop, flip):
    pixels = noise(30, 3, 3, 4)
    made = [images.normalised(image, PLAIN.mean, PLAIN.std) for image in pixels.tolist()]
    inputs = Transform(PLAIN.mean, PLAIN.std, crop=crop, flip=flip)(pixels, rng())
    changed = [not torch.allclose(row, torch.tensor(plain), atol=1e-5) for row, plain in zip(inputs, made, strict=True)]
    assert any(changed) == bool(crop or flip)
    for image, row in zip(pixels.tolist(), inputs, strict=True):
        shifts = [
            images.cropped(image, crop, down, right) for down in range(2 * crop + 1) for right in range(2 * crop + 1)
        ]
        shifts += [images.mirrored(shift) for shift in shifts] if flip else []
        options = [torch.tensor(images.normalised(shift, PLAIN.mean, PLAIN.std)) for shift in shifts]
        assert any(torch.allclose(row, option, atol=1e-5) for option in options)


@pytest.mark.parametrize("padding", [1, 2])
def test_a_random_crop_is_one_of_the_shifts_of_its_own_image_and_all_of_them_come_up(padding):
    pixels = noise(300, 2, 3, 5, low=1)  # no zeros, so that only the border is black
    seen = set()
    for image, crop in zip(pixels.tolist(), random_crop(pixels, padding, rng()).tolist(), strict=True):
        offsets = [(down, right) for down in range(2 * padding + 1) for right in range(2 * padding + 1)]
        match = [offset for offset in offsets if images.cropped(image, padding, *offset) == crop]
        assert len(match) == 1
        seen.add(match[0])
    assert len(seen) == (2 * padding + 1) ** 2


def test_a_random_flip_mirrors_about_half_of_the_images():
    pixels = noise(400, 2, 3, 4)
    flipped = 0
    for image, result in zip(pixels.tolist(), random_flip(pixels, rng()).tolist(), strict=True):
        assert result in (image, images.mirrored(image))
        flipped += result != image
    assert 150 < flipped < 250  # 5 sigma


def windows(image: images.Image, side: int) -> dict[tuple[int, int], images.Image]:
    """All squares of an image by their corner."""
    downs, rights = range(len(image[0]) - side + 1), range(len(image[0][0]) - side + 1)
    return {
        (down, right): [[row[right : right + side] for row in plane[down : down + side]] for plane in image]
        for down in downs
        for right in rights
    }


@pytest.mark.parametrize(("side", "places"), [(2, 2 * 4), (3, 1 * 3), (1, 3 * 5)])
def test_a_random_window_is_a_square_of_its_own_image_and_all_of_them_come_up(side, places):
    pixels = torch.stack([torch.randperm(30, generator=rng(n)).view(2, 3, 5) for n in range(300)]).to(torch.uint8)
    seen = set()
    for image, cut in zip(pixels.tolist(), random_window(pixels, side, rng()).tolist(), strict=True):
        match = [corner for corner, window in windows(image, side).items() if window == cut]
        assert len(match) == 1
        seen.add(match[0])
    assert len(seen) == places


@given(height=st.integers(1, 9), width=st.integers(1, 9), data=st.data())
def test_the_middle_has_as_much_on_either_side_or_one_more_after_it(height, width, data):
    side = data.draw(st.integers(1, min(height, width)))
    pixels = noise(2, 3, height, width)
    corner = ((height - side) // 2, (width - side) // 2)
    assert center_crop(pixels, side).tolist() == [windows(image, side)[corner] for image in pixels.tolist()]


def test_a_transform_with_a_window_shows_the_middle_and_in_training_any_part_mirrored_or_not():
    pixels = noise(200, 3, 4, 5)
    windowed = Transform(PLAIN.mean, PLAIN.std, flip=True, window=3)
    assert torch.equal(windowed(pixels), PLAIN(pixels[:, :, 0:3, 1:4]))
    inputs = windowed(pixels, rng())
    assert inputs.shape == (200, 3, 3, 3)
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    seen = set()
    for image, row in zip(pixels, inputs, strict=True):
        options = {(corner, False): cut for corner, cut in windows(image.tolist(), 3).items()}
        options |= {(corner, True): images.mirrored(cut) for (corner, _), cut in options.items()}
        made = PLAIN(torch.tensor(list(options.values()), dtype=torch.uint8))
        match = [key for key, option in zip(options, made, strict=True) if torch.equal(option, row)]
        assert len(match) == 1
        seen.add(match[0])
    assert len(seen) == 2 * 3 * 2


@pytest.mark.parametrize(
    "augment", [lambda p, g: random_crop(p, 2, g), lambda p, g: random_window(p, 4, g), random_flip]
)
def test_augmentation_repeats_by_generator(augment):
    pixels = noise(50, 1, 6, 6)
    first, again, other = (augment(pixels, rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def client_data(pixels: torch.Tensor, rows: list[int], labels: list[int]) -> ClientDataset:
    return ClientDataset(pixels, torch.tensor(rows), torch.tensor(labels), classes=4, transform=PLAIN)


def test_a_shard_reads_its_own_rows_in_the_order_asked_for():
    pixels = noise(6, 3, 4, 4)
    mine = client_data(pixels, [1, 4, 5], [0, 2, 2])
    assert len(mine) == 3
    assert torch.equal(mine.inputs(torch.tensor([2, 0])), PLAIN(pixels[[5, 1]]))
    assert torch.equal(mine.inputs(slice(1, 3)), PLAIN(pixels[[4, 5]]))


def test_shards_share_the_pixels_of_the_set():
    pixels = noise(6, 3, 4, 4)
    left, right = client_data(pixels, [0, 1], [0, 0]), client_data(pixels, [2, 3], [0, 0])
    assert left.pixels.data_ptr() == right.pixels.data_ptr() == pixels.data_ptr()
    pixels[2] = 255
    assert torch.equal(right.inputs(slice(0, 1)), PLAIN(torch.full((1, 3, 4, 4), 255, dtype=torch.uint8)))


def test_a_shard_augments_only_with_a_generator():
    pixels = noise(20, 3, 6, 6)
    mine = ClientDataset(
        pixels, torch.arange(20), torch.zeros(20, dtype=torch.long), 4, Transform((0.1,) * 3, (0.5,) * 3, crop=2)
    )
    everything = slice(None)
    assert torch.equal(mine.inputs(everything), mine.inputs(everything))
    assert torch.equal(mine.inputs(everything, rng(1)), mine.inputs(everything, rng(1)))
    assert not torch.equal(mine.inputs(everything, rng(1)), mine.inputs(everything))


def test_class_counts_include_absent_classes():
    assert client_data(noise(6, 3, 4, 4), [1, 4, 5], [0, 2, 2]).class_counts().tolist() == [1, 0, 2, 0]
