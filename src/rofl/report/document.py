"""A page that needs nothing but itself: one shell for all of them."""

from importlib.resources import files
from string import Template

from rofl.report import charts
from rofl.report.provenance import made_with


def document(name: str, title: str, script: str, **parts: str) -> str:
    """The page whose body is the template `name`, with its parts put in.

    Args:
        name: a file of this room.
        title: safe in HTML, as all parts are.
        script: the calls that draw its charts.
        parts: what else the template asks for.
    """
    body = _template(name).substitute(title=title, made_with=made_with(), **parts)
    style = _template("style.css").template
    return _template("shell.html").substitute(
        title=title, style=style, body=body, plotly=charts.library(), script=script
    )


def _template(name: str) -> Template:
    return Template((files("rofl.report") / name).read_text(encoding="utf-8"))
