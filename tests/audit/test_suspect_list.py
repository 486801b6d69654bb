"""Lists of suspects as files: what is written comes back, and no spreadsheet runs it."""

import csv
from pathlib import Path

import pytest

from rofl.audit.suspect_list import SuspectRow, read_suspects, write_suspects
from rofl.errors import UserError

ROWS = [
    SuspectRow(0, "=clinic", "@a.png", "-1", "+plus", 0.75, True),
    SuspectRow(7, 'south, "east"', "b\n.png", "=HYPERLINK(1)", "cat", 0.25, False),
]
HEAD = "sample,given,suggested,score,flagged,row,client\n"


def test_what_is_written_comes_back_and_is_no_formula(tmp_path: Path) -> None:
    path = tmp_path / "clinic.csv"
    write_suspects(path, ROWS, named=True)
    assert read_suspects(path) == ROWS
    with open(path, newline="") as file:
        cells = {cell for line in csv.reader(file) for cell in line}
    assert {cell for cell in cells if cell[0] in "=+-@"} == {"-1"}


@pytest.mark.parametrize(
    "line",
    [
        "a,x,y,0.5,yes,0",
        "a,x,y,0.5,yes,0,c,more",
        "a,x,y,1.5,yes,0,c",
        "a,x,y,nan,yes,0,c",
        "a,x,y,0.5,perhaps,0,c",
        "a,x,y,0.5,yes,-1,c",
        "a,x,y,0.5,yes,99999999999999999999,c",
    ],
)
def test_rows_that_cannot_be_are_told(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEAD + line + "\n")
    with pytest.raises(UserError, match="is not a list of suspects"):
        read_suspects(tmp_path / "a.csv")
