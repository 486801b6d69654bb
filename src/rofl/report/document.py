"""A page that needs nothing but itself: one shell for all of them."""

from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import NamedTuple

from rofl.report import charts
from rofl.report.provenance import made_with


class Section(NamedTuple):
    """A piece of a page, and the script that fills it; both empty where there is nothing to tell."""

    html: str = ""  # safe
    script: str = ""


def document(name: str, title: str, scripts: Sequence[str], styles: Sequence[str] = (), **parts: str) -> str:
    """The page whose body is the template `name`, with its parts put in.

    Args:
        name: a file of this room.
        title: safe in HTML, as all parts are.
        scripts: run one after the other; one that fails does not stop the next.
        styles: style sheets of this room beside the common one.
        parts: what else the template asks for.
    """
    return fill(
        "shell.html",
        title=title,
        style="\n".join(read(sheet) for sheet in ("style.css", *styles)),
        body=fill(name, title=title, made_with=made_with(), **parts),
        plotly=charts.library(),
        scripts="\n".join(f"<script>\n{script}\n</script>" for script in scripts if script),
    )


def fill(name: str, **parts: str) -> str:
    """A template of this room with its parts put in."""
    return Template(read(name)).substitute(parts)


def read(name: str) -> str:
    """A file of this room."""
    return (files("rofl.report") / name).read_text(encoding="utf-8")
