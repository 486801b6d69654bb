"""Cells that a spreadsheet would run are marked, and come back as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rofl.data.spreadsheet import escape_cell, unescape_cell

DANGEROUS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])) | st.text("'=+-@\t\r1.e", max_size=6))
def test_every_text_comes_back_and_none_is_a_formula(text: str) -> None:
    written = escape_cell(text)
    assert unescape_cell(written) == text
    if written and written[0] in DANGEROUS:
        float(written)  # a number, which is harmless


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1+1", "-1-1", "@SUM(A1)", "\t=1", "-", "+", "-1\n=2", "- 1"])
def test_formulas_get_an_apostrophe(text: str) -> None:
    assert escape_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["cat", "-1", "+0.5", "1e-3", "-.5", "", "'s-Hertogenbosch", "a=b"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert escape_cell(text) == unescape_cell(text) == text
