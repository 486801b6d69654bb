"""The templates and static files of the pages, and the Jinja environment that renders them.

A page is self-contained: styles, scripts and plotly.js are inlined, and nothing is loaded from a network. It may link
only to image files in or near its own folder.

Autoescape is on for every template, so values such as names of clients, classes and files appear as plain text. Only
`Markup` passes unescaped: rendered templates, static files, plotly.js and the calls from `charts`.
"""

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup

from rofl.core.version import __version__
from rofl.report import formatting
from rofl.report.charts import plotly_source

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGE = "rofl.report"
_EMPTY = Markup("")


@dataclass(frozen=True)
class Section:
    """A part of a page; empty if there is nothing to show.

    To add a section, write a module in `rofl.report.sections` and a template, and list it in `rofl.report.page`.
    """

    html: Markup = _EMPTY
    script: Markup = _EMPTY  # JavaScript that fills the HTML; runs after plotly.js has loaded
    styles: tuple[str, ...] = ()  # static style sheets besides style.css
    links_images: bool = False  # whether it shows image files that are not embedded in the page


def render(template: str, **view: object) -> Markup:
    """Render a template.

    Args:
        template: its file name in `templates/`.
        view: the values that the template uses; a missing name raises an error.

    Returns:
        The HTML, with every value escaped.

    >>> print(render("notice.html.j2", heading="<b>", sentence="Nothing to see."))
    <section>
      <h2>&lt;b&gt;</h2>
      <p class="lead">Nothing to see.</p>
    </section>
    """
    return Markup(_environment().get_template(template).render(view))


def read_static(name: str) -> Markup:
    """Return the text of a style sheet or script in `static/`, for verbatim inclusion in a page."""
    return Markup((files(_PACKAGE) / "static" / name).read_text(encoding="utf-8"))


def render_document(template: str, title: str, sections: Iterable[Section], **view: object) -> str:
    """Render a whole page.

    Each section's script gets its own `<script>` element, so a failing script does not stop the others.

    Args:
        template: a template that extends `base.html.j2`.
        title: the page's title and heading.
        sections: the parts in reading order, passed to the template as `sections`.
        view: further values that the template uses.

    Returns:
        The HTML of the page.
    """
    sections = [section for section in sections if section.html]
    styles = dict.fromkeys(["style.css", *(sheet for section in sections for sheet in section.styles)])
    return render(
        template,
        title=title,
        sections=sections,
        styles=[read_static(sheet) for sheet in styles],
        plotly=Markup(plotly_source()),
        scripts=[section.script for section in sections if section.script],
        links_images=any(section.links_images for section in sections),
        made_with=f"rofl {__version__}, Python {platform.python_version()}, plotly {version('plotly')}",
        **view,
    )


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # most commands write no page

    environment = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "share": formatting.share,
        "thousands": formatting.count,
        "shortened": formatting.shortened,
    }
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}  # compact, and without sorting the keys
    return environment
