import warnings

import pytest
from PIL import Image

from rofl.data import image_io
from rofl.data.user import decode
from rofl.data.user.samples import Sample
from tests.data import pictures


@pytest.mark.parametrize(
    ("shorter", "side"), [([28] * 5, 28), ([30], 28), ([500], 64), ([3], 8), ([8, 20, 90], 20), ([11], 8), ([], 64)]
)
def test_the_side_is_the_median_of_the_shorter_ones(shorter, side):
    infos = [
        image_io.ImageInfo("", (value + 100 * (n % 2), value + 100 * (n % 2 == 0))) for n, value in enumerate(shorter)
    ]
    assert decode.suitable_side([*infos, image_io.ImageInfo("", (999, 999), error="damaged")]) == side


@pytest.mark.parametrize(
    ("count", "shorter", "side"), [(100, 90, 64), (400, 90, 48), (400, 20, 20), (90_000, 90, 32), (90_000, 30, 28)]
)
def test_many_images_are_made_smaller_but_not_below_32(count, shorter, side):
    infos = [image_io.ImageInfo("", (shorter, shorter))] * count
    assert decode.suitable_side(infos, most_pixels=1_000_000) == side
    assert decode.suitable_side(infos) == min(64, shorter // 4 * 4)


def entries(paths):
    return [Sample(path.name, "x", None, False, path) for path in paths]


@pytest.mark.parametrize(("last", "channels"), [("L", 1), ("grey RGB", 1), ("RGB", 3), ("P", 3), ("broken", 1)])
def test_grey_if_no_image_has_colours(tmp_path, last, channels):
    paths = [pictures.write(tmp_path / f"{n}.png", mode="L", seed=n) for n in range(3)]
    if last == "grey RGB":
        Image.open(paths[0]).convert("RGB").save(tmp_path / "last.png")
    elif last == "broken":
        (tmp_path / "last.png").write_bytes(b"no")
    else:
        pictures.write(tmp_path / "last.png", mode=last, seed=5)
    found = entries([*paths, tmp_path / "last.png"])
    assert decode.suitable_channels(found, decode.inspect_all(found)) == channels


def damage(path, kind):
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_bytes(b"hello" * 50)
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[:-60])
    elif kind == "gone":
        path.unlink()
    elif kind == "changed":
        raw = bytearray(path.read_bytes())
        raw[60:70] = bytes(10)
        path.write_bytes(raw)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        *(("empty", "not an image"), ("text", "not an image"), ("gone", "not there")),
        *(("cut", "damaged (OSError)"), ("changed", "damaged")),
    ],
)
def test_a_broken_image_is_left_out_and_named(tmp_path, kind, reason):
    paths = [pictures.write(tmp_path / f"{n}.png", 20, 20, seed=n) for n in range(3)]
    damage(paths[1], kind)
    found = entries(paths)
    pixels, unreadable = decode.decode_all(found, decode.inspect_all(found), 8, 3)
    assert list(unreadable) == [1]
    assert unreadable[1].startswith(reason)
    assert pixels.shape == (3, 3, 8, 8)
    assert pixels[2].any()


@pytest.mark.parametrize("limit", [1000, 3000])  # an image of twice the limit is an error, of less a warning
def test_a_huge_image_is_left_out(tmp_path, monkeypatch, limit):
    paths = [pictures.write(tmp_path / "0.png", 20, 20), pictures.write(tmp_path / "1.png", 70, 70)]
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    found = entries(paths)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        _, unreadable = decode.decode_all(found, decode.inspect_all(found), 8, 3)
    assert unreadable == {1: "too large"}
    assert heard == []


# --- the cache ---


@pytest.fixture
def found(tmp_path):
    paths = [pictures.write(tmp_path / f"{n}.png", 20, 20, seed=n) for n in range(4)]
    damage(paths[2], "text")
    return entries(paths)


def take(found, side=8, channels=3, told=None):
    return decode.decode_all(found, decode.inspect_all(found), side, channels, told)


def forbid(monkeypatch):
    def refuse(*_):
        raise AssertionError("decoded again")

    monkeypatch.setattr(image_io, "decode_image", refuse)


def test_images_are_decoded_once(found, cache, monkeypatch):
    told = []
    pixels, unreadable = take(found, told=lambda *done: told.append(done))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert len(list(cache.iterdir())) == 1
    forbid(monkeypatch)
    again, same = take(found, told=lambda *done: told.append(done))
    assert (again == pixels).all()
    assert same == unreadable == {2: "not an image"}
    assert len(told) == 4


@pytest.mark.parametrize("change", ["bytes", "name", "side", "channels", "more", "order"])
def test_other_content_is_decoded_anew(found, cache, change, tmp_path):
    before, _ = take(found)
    side, channels = (12 if change == "side" else 8), (1 if change == "channels" else 3)
    if change == "bytes":
        pictures.write(tmp_path / "1.png", 20, 20, seed=77)
    elif change == "name":
        found[0] = Sample("other", "x", None, False, found[0].content)
    elif change == "more":
        found = [*found, Sample("more", "x", None, False, found[0].content)]
    elif change == "order":
        found = found[::-1]
    after, _ = take(found, side, channels)
    assert len(list(cache.iterdir())) == 2
    if change == "bytes":
        assert (before[1] != after[1]).any()


def test_labels_and_clients_are_not_in_the_cache(found, cache):
    take(found)
    take([Sample(e.id, "other", "another", True, e.content) for e in found])
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("kind", ["cut", "bit", "empty", "text", "folder"])
def test_a_damaged_cache_file_is_decoded_again(found, cache, kind):
    pixels, unreadable = take(found)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    raw = bytearray(whole)
    if kind == "bit":
        raw[-5] ^= 1
    file.unlink()
    if kind == "folder":
        file.mkdir()
    else:
        file.write_bytes({"cut": raw[:-9], "bit": raw, "empty": b"", "text": b"{" * 99}[kind])
    again, same = take(found)
    assert (again == pixels).all()
    assert same == unreadable
    if kind != "folder":  # which is in the way of a new one
        assert file.read_bytes() == whole
        assert len(list(cache.iterdir())) == 1


def test_without_room_for_a_cache_it_works_all_the_same(found, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "file"))
    assert take(found)[0].any()


def test_without_a_variable_it_is_the_users_cache(monkeypatch, tmp_path):
    import pooch

    from rofl.data.user.decode import cache_dir

    monkeypatch.delenv("ROFL_CACHE")
    assert cache_dir() == pooch.os_cache("rofl") / "own"
