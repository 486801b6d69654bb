"""Templates escape what they are given, and ask for nothing that is missing."""

import re
from pathlib import Path

import jinja2
import pytest
from markupsafe import Markup

import rofl.report
from rofl.report.environment import read_static, render

ROOM = Path(rofl.report.__file__).parent
TEMPLATES = sorted(path.name for path in (ROOM / "templates").iterdir())


def test_values_are_escaped_and_markup_is_not():
    html = render("notice.html.j2", heading="<i>", sentence=Markup("<b>bold</b>"))
    assert "&lt;i&gt;" in html
    assert "<b>bold</b>" in html


def test_a_name_that_is_missing_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="sentence"):
        render("notice.html.j2", heading="x")


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_template_lets_a_value_through(name):
    assert name.endswith(".html.j2")
    text = (ROOM / "templates" / name).read_text()
    assert not re.search(r"\|\s*safe\b|autoescape|Markup", text)


def test_python_writes_no_html():
    """Elements are in templates; a chart's hover text may break a line."""
    for path in ROOM.rglob("*.py"):
        text = path.read_text().replace('"', "'")
        docstrings_removed = re.sub(r"\'\'\'.*?\'\'\'", "", text, flags=re.DOTALL)
        tags = set(re.findall(r"</?([a-z][a-z0-9]*)[ >]", docstrings_removed))
        assert tags <= {"br", "extra"}, path


def test_static_files_are_trusted_as_they_are():
    assert "=> {" in read_static("gallery.js")
    assert isinstance(read_static("style.css"), Markup)
