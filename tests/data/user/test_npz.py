import numpy as np
import pytest

from rofl.data.user import npz
from rofl.errors import UserError
from tests.data.user.places import write_arrays


def refused(path) -> str:
    with pytest.raises(UserError) as caught:
        npz.read_npz(path)
    assert "\n" not in str(caught.value)
    return caught.value.sentence


def test_images_labels_and_clients(tmp_path):
    entries = npz.read_npz(write_arrays(tmp_path / "a.npz")).samples
    assert len(entries) == 30
    assert [(e.id, e.client, e.label, e.test) for e in entries[::14]] == [
        ("0", "site 2", "cat", False),
        ("14", "site 2", "ox", False),
        ("28", "site 10", "ox", False),
    ]
    assert entries[0].content.shape == (8, 8)


@pytest.mark.parametrize("kind", [np.int64, np.uint8, "U5", "S5"])
def test_labels_and_clients_are_numbers_or_texts(tmp_path, kind):
    names = np.array([str(n % 3) for n in range(30)]).astype(kind)
    entries = npz.read_npz(write_arrays(tmp_path / "a.npz", labels=names, clients=names)).samples
    assert [e.label for e in entries[:4]] == [e.client for e in entries[:4]] == ["0", "1", "2", "0"]


def test_numbers_that_are_no_characters_are_replaced(tmp_path):
    """numpy reads any 32 bits as a character; Python has characters up to 0x10FFFF."""
    labels = np.array(["cat", "dog", "owl"] * 10)
    labels.view(np.uint32).reshape(30, 3)[0, 1] = 0x9300006F
    entries = npz.read_npz(write_arrays(tmp_path / "a.npz", labels=labels)).samples
    assert entries[0].label.startswith("c\ufffd")
    assert entries[0].label.encode().decode() == entries[0].label


def test_clients_may_be_absent_and_a_test_part_given(tmp_path):
    tests = {"test_images": np.zeros((2, 8, 8, 3), np.uint8), "test_labels": np.array(["cat ", " ox"])}
    entries = npz.read_npz(write_arrays(tmp_path / "a.npz", clients=None, **tests)).samples
    assert {e.client for e in entries} == {None}
    assert [(e.id, e.label, e.test) for e in entries[-2:]] == [("test 0", "cat", True), ("test 1", "ox", True)]


@pytest.mark.parametrize("shape", [(30, 8, 6), (30, 8, 6, 1), (30, 8, 6, 3), (30, 8, 6, 4)])
def test_shapes(tmp_path, shape):
    entries = npz.read_npz(write_arrays(tmp_path / "a.npz", images=np.zeros(shape, np.uint8))).samples
    assert entries[0].content.shape == shape[1:]


class Unpickled:
    """Leaves a trace where it is brought back to life."""

    def __reduce__(self):
        return (Unpickled.__init_subclass__, ())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"images": None}, "{path} has no array 'images'; it has labels, clients."),
        ({"labels": None}, "{path} has no array 'labels'; it has images, clients."),
        ({"images": np.zeros((30, 8, 8), np.float32)}, "images of {path} is float32."),
        ({"images": np.zeros((30, 64), np.uint8)}, "images of {path} has the shape (30, 64)."),
        ({"images": np.zeros((30, 3, 8, 8), np.uint8)}, "images of {path} has the shape (30, 3, 8, 8)."),
        ({"images": np.zeros((30, 0, 8), np.uint8)}, "images of {path} has the shape (30, 0, 8)."),
        ({"labels": np.zeros(30)}, "labels of {path} is float64."),
        ({"labels": np.zeros(29, int)}, "labels of {path} has the shape (29,), and there are 30 images."),
        ({"clients": np.zeros((30, 1), int)}, "clients of {path} has the shape (30, 1), and there are 30 images."),
        ({"labels": np.array(["x"] * 29 + [" "])}, "Place 29 in labels of {path} is empty."),
        ({"test_images": np.zeros((2, 8, 8), np.uint8)}, "{path} has no array 'test_labels'; it has"),
        ({"test_labels": np.zeros(2, int)}, "{path} has no array 'test_images'; it has"),
    ],
)
def test_mistakes_are_told_in_one_sentence(tmp_path, changes, sentence):
    path = write_arrays(tmp_path / "a.npz", **changes)
    assert refused(path).startswith(sentence.format(path=path))


def test_objects_are_never_unpickled(tmp_path):
    path = write_arrays(tmp_path / "a.npz", labels=np.array([Unpickled()] * 30, dtype=object))
    assert "cannot be read as arrays" in refused(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"hello"])
def test_other_files_are_told(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    assert "cannot be read as arrays" in refused(tmp_path / "a.npz")


def test_a_lone_array_is_told(tmp_path):
    with open(tmp_path / "a.npz", "wb") as file:
        np.save(file, np.zeros(3))
    assert "cannot be read as arrays" in refused(tmp_path / "a.npz")


def test_an_archive_that_was_cut_is_told(tmp_path):
    path = write_arrays(tmp_path / "a.npz")
    raw = bytearray(path.read_bytes())
    raw[600:700] = bytes(100)
    path.write_bytes(raw)
    assert "cannot be read as arrays" in refused(path)
