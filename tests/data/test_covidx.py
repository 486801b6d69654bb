import gzip
from collections import Counter

import pytest
import torch

from rofl.data import load_dataset
from rofl.data.sources import covidx
from rofl.errors import UserError
from tests.data import pictures
from tests.data.test_real_files import folder as real

LINES = {
    "train": [
        "3 a-day0.jpeg pneumonia cohen",
        "COVID 1 COVID(1).png COVID-19 sirm",  # a space in the patient's id
        "47c78742-4998 47c78742-4998.png normal",  # no source
        "9 b.PNG normal rnsa",
        "3 a-day0.jpeg pneumonia cohen",  # again
        "10 gone.jpg COVID-19 fig1",  # not on disk
    ],
    "test": ["5 t1.jpg COVID-19 actmed", "6 t2.jpg normal"],
}
IMAGES = {"train": ["a-day0.jpeg", "COVID(1).png", "47c78742-4998.png", "b.PNG"], "test": ["t1.jpg", "t2.jpg"]}


def write_set(root, lines=LINES, name="{}_split.txt"):
    for part, texts in lines.items():
        text = "".join(f"{line}\n" for line in texts)
        path = root / name.format(part)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        for n, image in enumerate(IMAGES[part]):
            if not (root / part / image).exists():
                pictures.write(root / part / image, 90 + 50 * n, 140, "L" if n % 2 else "RGB", seed=n)
    return root


def refused(root) -> UserError:
    with pytest.raises(UserError) as caught:
        covidx.load_covidx(root)
    assert "\n" not in caught.value.sentence
    return caught.value


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    "name", ["{}_split.txt", "{}.txt", "{}_COVIDx.txt", "{}_COVIDx9B.txt", "labels/{}_COVIDx5.txt"]
)
def test_every_published_name_of_the_label_files_is_found(tmp_path, name, ending):
    write_set(tmp_path / "covidx", name=name + ending)
    images = load_dataset("covidx", tmp_path)
    assert images.classes == ("normal", "pneumonia", "COVID-19")
    files = [str(tmp_path / "covidx/train" / file) for file in IMAGES["train"]]
    assert [images.train.path(row) for row in range(len(images.train))] == files
    assert images.train_labels.tolist() == [1, 2, 0, 0]
    assert images.test_labels.tolist() == [2, 0]
    assert images.truth_known


def test_images_are_grey_squares_of_128_of_which_112_are_seen(tmp_path):
    images = covidx.load_covidx(write_set(tmp_path))
    assert images.train[:].shape == (4, 1, 128, 128)
    assert images.shape == (1, 112, 112)
    assert images.transform(images.train[:]).shape == (4, 1, 112, 112)
    assert not images.transform.flip


def test_images_that_are_not_there_are_left_out_and_counted(tmp_path):
    assert covidx.load_covidx(write_set(tmp_path)).note == (
        "1 of 5 train images of the label files are not on disk and were left out."
    )
    (tmp_path / "test/t2.jpg").unlink()
    images = covidx.load_covidx(tmp_path)
    assert "1 of 5 train images and 1 of 2 test images" in images.note
    assert len(images.test) == 1
    for part in ("train", "test"):
        write_set(tmp_path, {part: [line for line in LINES[part] if "gone" not in line and "t2" not in line]})
    assert covidx.load_covidx(tmp_path).note == ""


def test_classes_are_those_of_the_images_in_a_fixed_order(tmp_path):
    binary = {"train": ["1 a-day0.jpeg positive", "2 b.PNG negative bimcv"], "test": ["3 t1.jpg positive"]}
    assert covidx.load_covidx(write_set(tmp_path / "b", binary)).classes == ("negative", "positive")
    first = {
        "train": ["1 a-day0.jpeg COVID-19", "2 b.PNG viral", "3 COVID(1).png bacteria"],
        "test": ["3 t1.jpg normal"],
    }
    images = covidx.load_covidx(write_set(tmp_path / "v1", first))
    assert images.classes == ("normal", "bacteria", "viral", "COVID-19")
    assert images.train_labels.tolist() == [3, 2, 1]


@pytest.mark.parametrize("line", ["3 a.jpeg flu cohen", "a.jpeg normal", "normal", "3 a.jpeg normal cohen extra"])
def test_a_line_of_another_kind_is_named(tmp_path, line):
    write_set(tmp_path, {**LINES, "test": ["5 t1.jpg COVID-19", "", line]})
    error = refused(tmp_path)
    assert error.sentence == f"Line 3 of {tmp_path / 'test_split.txt'} is not `patient file class [source]`."
    assert "COVID-19" in error.hint


def test_an_absent_folder_or_label_file_is_told(tmp_path):
    error = refused(tmp_path / "covidx")
    assert error.sentence == f"COVIDx is not in {tmp_path / 'covidx'}."
    assert "COVID-Net" in error.hint
    write_set(tmp_path, {"train": LINES["train"]})
    (tmp_path / "test_COVIDx5.txt").write_text("another version\n")
    assert "has no pair of label files" in refused(tmp_path).sentence


def test_two_versions_are_a_question_unless_a_split_file_answers_it(tmp_path):
    write_set(tmp_path, name="{}_COVIDx5.txt")
    write_set(tmp_path, name="{}_COVIDx8A.txt")
    assert refused(tmp_path).sentence == f"{tmp_path} has label files of 2 versions: COVIDx5, COVIDx8A."
    write_set(tmp_path, {**LINES, "train": LINES["train"][:2]})
    assert len(covidx.load_covidx(tmp_path).train) == 2


def test_a_set_without_images_or_of_one_class_is_refused(tmp_path):
    write_set(tmp_path, {"train": LINES["train"][:1], "test": ["3 t1.jpg pneumonia"]})
    assert refused(tmp_path).sentence == f"The images in {tmp_path} are of 1 classes; two are needed."
    (tmp_path / "test/t1.jpg").unlink()
    assert refused(tmp_path).sentence == f"None of the 1 listed images is in {tmp_path / 'test'}."


def test_an_unreadable_label_file_is_named(tmp_path):
    write_set(tmp_path, name="{}.txt.gz")
    (tmp_path / "train.txt.gz").write_bytes(b"\x1f\x8bno")
    assert refused(tmp_path).sentence.startswith(f"{tmp_path / 'train.txt.gz'} cannot be read (")


@pytest.mark.parametrize(
    ("version", "train", "test"),
    [
        ("5", {"normal": 7966, "pneumonia": 5475, "COVID-19": 517}, 300),
        ("7A", {"normal": 7966, "pneumonia": 5475, "COVID-19": 1670}, 300),
        ("8A", {"normal": 7966, "pneumonia": 5475, "COVID-19": 2158}, 400),
        ("9B", {"positive": 16490, "negative": 13992}, 400),
    ],
)
def test_the_real_label_files_have_their_published_counts(version, train, test):
    files = real("covidx_mini") / "full_label_files"
    lines = covidx.read_labels(files / f"train_COVIDx{version}.txt.gz")
    assert Counter(kind for _, kind in lines) == train
    assert len(covidx.read_labels(files / f"test_COVIDx{version}.txt.gz")) == test
    assert all(name.rpartition(".")[2].lower() in ("png", "jpg", "jpeg") for name, _ in lines)
    if version in ("5", "8A", "9B"):
        assert len(lines) == {"5": 13958, "8A": 15599, "9B": 30482}[version]


def test_the_real_sample_loads():
    images = load_dataset("covidx_mini", real("covidx_mini").parent)
    assert images.classes == ("pneumonia", "COVID-19")
    assert torch.bincount(images.train_labels).tolist() == [34, 213]
    assert torch.bincount(images.test_labels).tolist() == [3, 23]
    assert images.note == ""
    pixels = images.train[:]
    assert pixels.shape == (247, 1, 128, 128)
    inputs = images.transform(pixels)
    assert abs(float(inputs.mean())) < 0.5
    assert 0.5 < float(inputs.std()) < 1.5
