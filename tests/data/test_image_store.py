import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from rofl.data import ClientDataset, Dataset, Transform
from rofl.data.image_store import ImageFiles, slice_images, store_from_tensors, store_to_tensors
from rofl.errors import UserError
from rofl.methods.inference import predict, predict_client
from rofl.models import build
from tests.data import pictures

NAMES = ["a,1.png", "sub/b.png", "", "ü 2.jpg", "c.png"]
TRANSFORM = Transform((0.5,) * 3, (0.3,) * 3, flip=True, window=6)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> ImageFiles:
    """Ten pictures of other sizes than the side asked for."""
    root = tmp_path_factory.mktemp("pictures")
    names = [f"{n % 3}/p{n},{n}.{'jpg' if n % 2 else 'png'}" for n in range(10)]
    for n, name in enumerate(names):
        pictures.write(root / name, 9 + 5 * n, 30 - n, seed=n)
    return ImageFiles.of(root, names, side=8, channels=3)


def twin(path: str, side: int, mode: str) -> torch.Tensor:
    """One image by the shortest use of PIL, and each value by hand."""
    image = Image.open(path)
    image.draft(mode, (side, side))
    image = image.convert(mode).resize((side, side), Image.Resampling.BILINEAR)
    planes = [[[image.getpixel((x, y)) for x in range(side)] for y in range(side)]]
    if mode == "RGB":
        planes = [[[pixel[channel] for pixel in row] for row in planes[0]] for channel in range(3)]
    image.close()
    return torch.tensor(planes, dtype=torch.uint8)


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
@pytest.mark.parametrize("suffix", ["png", "jpg", "JPG", "jpeg"])
@pytest.mark.parametrize("size", [(5, 7), (8, 8), (61, 40), (300, 200)], ids=str)
def test_pixels_are_pils(tmp_path, channels, mode, suffix, size):
    path = pictures.write(tmp_path / f"x.{suffix}", *size, seed=3)
    pixels = ImageFiles.of(tmp_path, [path.name], 8, channels)[:]
    assert pixels.dtype == torch.uint8
    assert torch.equal(pixels[0], twin(str(path), 8, mode))


def test_a_large_jpeg_is_nearly_what_it_is_when_decoded_in_full(tmp_path):
    path = pictures.write(tmp_path / "x.jpg", 500, 410, seed=5)
    full = Image.open(path).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
    apart = ImageFiles.of(tmp_path, ["x.jpg"], 32, 3)[0].permute(1, 2, 0).int() - torch.from_numpy(np.array(full)).int()
    assert float(apart.abs().float().mean()) < 4


@pytest.mark.parametrize(
    ("mode", "apart"), [("L", 1), ("LA", 1), ("RGB", 1), ("RGBA", 1), ("I;16", 1), ("P", 16), ("CMYK", 16)]
)
def test_every_mode_becomes_grey_or_colours(tmp_path, mode, apart):
    path = pictures.write(tmp_path / ("x.jpg" if mode == "CMYK" else "x.png"), 16, 16, mode, seed=1)
    expected = np.asarray(Image.fromarray(pictures.pattern(16, 16, 1)).convert("L")).astype(float)
    grey, colours = (ImageFiles.of(tmp_path, [path.name], 16, channels)[0].numpy() for channels in (1, 3))
    assert abs(grey[0] - expected).mean() <= apart
    assert abs(np.tensordot([0.299, 0.587, 0.114], colours, axes=1) - expected).mean() <= apart


def test_a_transparent_palette_raises_no_warning(tmp_path):
    image = Image.fromarray(pictures.pattern(8, 8, 0)).convert("P")
    image.save(tmp_path / "x.png", transparency=bytes(range(256)))
    assert ImageFiles.of(tmp_path, ["x.png"], 8, 3)[:].shape == (1, 3, 8, 8)


@given(names=st.lists(st.text(st.characters(blacklist_characters="\0/", blacklist_categories=["Cs"])), max_size=6))
def test_names_come_back_as_they_were(names):
    files = ImageFiles.of("/root", names, 8, 3)
    assert len(files) == len(names)
    assert [files.path(row) for row in range(len(files))] == [os.path.join("/root", name) for name in names]
    assert files.names.dtype == torch.uint8
    assert files.ends.dtype == torch.int64


@given(names=st.lists(st.sampled_from(NAMES), max_size=8), data=st.data())
def test_a_part_is_the_slice_of_the_names(names, data):
    files = ImageFiles.of("r", names, 8, 3)
    bound = st.none() | st.integers(-10, 10)
    piece = slice(data.draw(bound), data.draw(bound))
    some = files.slice_rows(piece)
    assert [some.path(row) for row in range(len(some))] == [os.path.join("r", name) for name in names[piece]]
    assert some.shape == (len(names[piece]), 3, 8, 8)
    assert len(some.names) == sum(len(os.fsencode(name)) for name in names[piece])


def test_a_part_has_no_steps():
    with pytest.raises(ValueError, match="step 1, not 2"):
        ImageFiles.of("r", NAMES, 8, 3).slice_rows(slice(None, None, 2))


def test_the_shape_is_known_without_decoding():
    assert ImageFiles.of("nowhere", NAMES, 8, 1).shape == (5, 1, 8, 8)


@pytest.mark.parametrize(
    "index",
    [
        3,
        -1,
        slice(None),
        slice(2, 7),
        slice(4, 4),
        torch.tensor([7, 0, 7]),
        torch.tensor([-2]),
        torch.tensor([], dtype=torch.long),
        torch.arange(10) % 3 == 0,
    ],
    ids=str,
)
def test_an_index_means_what_it_means_to_a_tensor(files, index):
    together = torch.stack([files[row] for row in range(10)])
    assert torch.equal(files[index], together[index])
    assert files[index].is_contiguous()


def test_an_index_out_of_range_is_an_error(files):
    with pytest.raises(IndexError):
        files[torch.tensor([10])]


@pytest.mark.parametrize("content", [b"", b"no image", None, "cut"], ids=["empty", "text", "absent", "cut short"])
@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_an_unreadable_image_is_named_in_one_sentence(tmp_path, content, suffix):
    path = pictures.write(tmp_path / f"x,1.{suffix}", 64, 64)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:300] if content == "cut" else content)
    with pytest.raises(UserError) as caught:
        ImageFiles.of(tmp_path, [path.name], 8, 3)[:]
    assert caught.value.sentence.startswith(f"The image {path} cannot be read (")
    assert "\n" not in caught.value.sentence


def test_files_and_tensors_cross_as_tensors_and_share_their_memory(files):
    flat = {
        **store_to_tensors("train", files.slice_rows(slice(2, 5))),
        **store_to_tensors("test", torch.zeros(2, 3, 8, 8)),
    }
    assert all(isinstance(value, torch.Tensor) for value in flat.values())
    again = store_from_tensors("train", flat)
    assert torch.equal(again[:], files[2:5])
    assert again.names.data_ptr() == flat["train/names"].data_ptr()
    assert store_from_tensors("test", flat) is flat["test"]


def test_a_part_of_a_tensor_is_a_view():
    pixels = torch.arange(6).view(6, 1, 1, 1)
    assert slice_images(pixels, slice(2, 4)).data_ptr() == pixels[2:].data_ptr()


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """How many images each access decodes."""
    sizes: list[int] = []
    decode = ImageFiles.__getitem__

    def counting(self, index):
        result = decode(self, index)
        sizes.append(len(result))
        return result

    monkeypatch.setattr(ImageFiles, "__getitem__", counting)
    return sizes


def test_a_set_is_divided_without_decoding(files, asked):
    labels = torch.arange(10) % 2
    images = Dataset("toy", ("a", "b"), files, labels, files, labels, TRANSFORM)
    some = images.hold_out(3).first(5, 2)
    assert asked == []
    assert images.shape == (3, 6, 6)
    assert torch.equal(some.train[:], files[:5])
    assert torch.equal(some.test[:], files[7:9])
    assert (some.train_labels.tolist(), some.test_labels.tolist()) == ([0, 1, 0, 1, 0], [1, 0])


def test_a_shard_of_files_gives_the_inputs_of_a_shard_in_memory(files):
    rows, labels = torch.tensor([8, 1, 4, 5]), torch.zeros(4, dtype=torch.long)
    streamed, held = (ClientDataset(pixels, rows, labels, 2, TRANSFORM) for pixels in (files, files[:]))
    for index in (torch.tensor([3, 0]), slice(1, 3)):
        for seed in (None, 1):
            pair = [
                data.inputs(index, None if seed is None else torch.Generator().manual_seed(seed))
                for data in (streamed, held)
            ]
            assert torch.equal(*pair)
            assert pair[0].stride() == pair[1].stride()


def test_prediction_takes_no_more_than_a_chunk_at_once_and_gives_the_same_bits(tmp_path, asked):
    for n in range(3):
        pictures.write(tmp_path / f"{n}.png", seed=n)
    many = ImageFiles.of(tmp_path, [f"{n % 3}.png" for n in range(300)], 8, 3)
    rows = torch.randperm(300, generator=torch.Generator().manual_seed(0))[:260]
    net = build("small", (3, 6, 6), 4, 1 / 4, seed=0)
    transform = Transform((0.5,) * 3, (0.3,) * 3, window=6)
    pixels = many[:]
    asked.clear()
    streamed = predict_client(net, ClientDataset(many, rows, rows, 300, transform))
    assert asked == [125, 125, 10]
    whole = predict(net, many, transform)
    assert asked[3:] == [125, 125, 50]
    for found, expected in (
        (streamed, predict(net, pixels[rows], transform)),
        (streamed, predict_client(net, ClientDataset(pixels, rows, rows, 300, transform))),
        (whole, predict(net, pixels, transform)),
    ):
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize("pixels", [torch.zeros(0, 3, 6, 6, dtype=torch.uint8), ImageFiles.of("", [], 6, 3)])
def test_no_images_give_no_predictions(pixels):
    net = build("small", (3, 6, 6), 4, 1 / 4, seed=0)
    logits, features = predict(net, pixels, TRANSFORM)
    assert (logits.shape, features.shape) == ((0, 4), (0, net.feature_size))
