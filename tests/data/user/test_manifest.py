import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from rofl.data.user import columns, table_listing
from rofl.errors import UserError, one_line
from tests.data.user.places import save, write_csv, write_folder, write_manifest


@pytest.fixture
def photos(tmp_path):
    return write_folder(tmp_path / "photos", each=1)


def read(path):
    return table_listing.read_manifest(path, columns.read_columns(path))


def refused(path) -> str:
    with pytest.raises(UserError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return caught.value.sentence


def listed(tmp_path, *rows):
    path = tmp_path / "list.csv"
    write_csv(path, rows)
    return path


def test_paths_are_relative_to_the_manifest_and_labels_stripped(tmp_path):
    write_folder(tmp_path / "photos")
    entry = read(write_manifest(tmp_path / "list.csv")).samples[0]
    assert (entry.id, entry.label, entry.client, entry.test) == ("photos/site 2/cat/0.png", "cat", "site 2", False)
    assert entry.content == tmp_path / "photos/site 2/cat/0.png"


def test_client_and_part_may_be_absent_and_columns_in_any_order_and_case(tmp_path, photos):
    path = listed(tmp_path, ("Label", " PATH", "remark"), ("x", "photos/site 2/cat/0.png", "?"))
    assert [(e.client, e.label, e.test) for e in read(path).samples] == [(None, "x", False)]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_spreadsheets_write(tmp_path, photos, delimiter, mark, end):
    lines = ["path;label;part", "photos/site 2/cat/0.png;x;", "", "photos/site 2/dog/0.png;y; TEST "]
    text = mark + "".join(line.replace(";", delimiter) + end for line in lines)
    (tmp_path / "list.csv").write_bytes(text.encode())
    assert [(e.label, e.test) for e in read(tmp_path / "list.csv").samples] == [("x", False), ("y", True)]


def test_parquet(tmp_path, photos):
    rows = {"path": ["photos/site 2/cat/0.png", "photos/site 2/dog/0.png"], "label": [3.0, 12.0], "client": [1, 2]}
    parquet.write_table(pa.table(rows), tmp_path / "list.parquet")
    assert [(e.client, e.label) for e in read(tmp_path / "list.parquet").samples] == [("1", "3"), ("2", "12")]
    (tmp_path / "list.parquet").write_bytes(b"PAR1 no")
    assert "cannot be read as parquet" in refused(tmp_path / "list.parquet")


@pytest.mark.parametrize(
    "name", ["../secret.png", "photos/../../secret.png", "/etc/hosts", "photos/out/secret.png", "\0"]
)
def test_a_path_out_of_the_folder_is_refused(tmp_path, photos, name):
    save(tmp_path.parent / f"{tmp_path.name}-outside" / "secret.png", np.zeros((4, 4), "uint8"))
    (photos / "out").symlink_to(tmp_path.parent / f"{tmp_path.name}-outside")
    sentence = refused(listed(tmp_path, ("path", "label"), ("photos/site 2/cat/0.png", "x"), (name, "x")))
    assert sentence == f"Row 2 of {tmp_path / 'list.csv'} leads out of {tmp_path}: {one_line(name)}."


def test_a_link_to_a_single_file_outside_is_refused_too(tmp_path, photos):
    save(tmp_path.parent / f"{tmp_path.name}-other" / "secret.png", np.zeros((4, 4), "uint8"))
    (photos / "link.png").symlink_to(tmp_path.parent / f"{tmp_path.name}-other" / "secret.png")
    assert "leads out" in refused(listed(tmp_path, ("path", "label"), ("photos/link.png", "x")))


def test_links_inside_are_welcome(tmp_path, photos):
    (photos / "link").symlink_to(photos / "site 2")
    assert len(read(listed(tmp_path, ("path", "label"), ("photos/link/cat/0.png", "x"))).samples) == 1


def test_absent_files_are_counted(tmp_path, photos):
    path = listed(
        tmp_path, ("path", "label"), ("photos/site 2/cat/0.png", "x"), ("a.png", "x"), ("b.png", "x"), ("photos", "y")
    )
    assert refused(path) == f"3 of 4 files that {path} names are not there: a.png and 2 more."


def test_a_repeated_row_is_left_out_and_a_contradiction_refused(tmp_path, photos):
    name, same = "photos/site 2/cat/0.png", "photos/./site 2//cat/0.png"
    listing = read(listed(tmp_path, ("path", "label"), (name, "x"), (same, "x")))
    assert len(listing.samples) == 1
    assert listing.notes == ["Left out, since it repeats an image: 1 row of list.csv."]
    assert "names photos/./site 2//cat/0.png again" in refused(
        listed(tmp_path, ("path", "label"), (name, "x"), (same, "y"))
    )
    head = ("path", "label", "client")
    assert "Row 2" in refused(listed(tmp_path, head, (name, "x", "a"), (name, "x", "b")))
    head = ("path", "label", "part")
    assert "another label, client or part" in refused(listed(tmp_path, head, (name, "x", "train"), (name, "x", "test")))


def test_backslashes_of_windows(tmp_path, photos):
    assert read(listed(tmp_path, ("path", "label"), (r"photos\site 2\cat\0.png", "x"))).samples[0].content.is_file()


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([("path", "client"), ("a.png", "x")], "{path} has no column 'label'; it has path, client."),
        ([("path", "label", "client"), ("a.png", "x", " ")], "Row 1 of {path} has no client."),
        ([("path", "label"), ("a.png", "")], "Row 1 of {path} has no label."),
        ([("path", "label"), ("", "x")], "Row 1 of {path} has no path."),
        ([("path", "label", "part"), ("a.png", "x", "val")], "Row 1 of {path} has the part 'val'."),
        ([("path", "label", "Label"), ("a.png", "x", "y")], "{path} has the column 'label' twice."),
        ([("path", "label")], "{path} has no rows."),
        ([("path", "label"), ("a.png", "x", "y")], "Line 2 of {path} has 3 fields, not 2."),
        ([], "{path} has no rows."),
    ],
)
def test_mistakes_are_told_in_one_sentence(tmp_path, rows, sentence):
    path = listed(tmp_path, *rows)
    assert refused(path) == sentence.format(path=path)


def test_other_encodings_are_told(tmp_path):
    (tmp_path / "list.csv").write_bytes("path,label\nä.png,x\n".encode("latin-1"))
    assert "cannot be read as CSV" in refused(tmp_path / "list.csv")


def test_a_table_has_no_path(tmp_path):
    path = listed(tmp_path, ("label", "client"), ("x", "a"))
    with pytest.raises(UserError, match="no columns to learn from"):
        table_listing.read_table(path, columns.read_columns(path))
