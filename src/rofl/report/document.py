"""A self-contained HTML document: styles, scripts and plotly.js are inlined, and nothing is loaded from a network."""

import platform
from collections.abc import Iterable
from importlib.metadata import version

from markupsafe import Markup

from rofl.report.charts import plotly_source
from rofl.report.environment import Section, read_static, render


def render_document(template: str, title: str, sections: Iterable[Section], **view: object) -> str:
    """Render a whole page.

    Each section's script gets a `<script>` element of its own, so that one that fails does not stop the others.

    Args:
        template: a template that extends `base.html.j2`.
        title: the page's title and heading.
        sections: the parts in reading order; the template gets them as `sections`.
        view: what else the template asks for.

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
        made_with=f"rofl {version('rofl')}, Python {platform.python_version()}, plotly {version('plotly')}",
        **view,
    )
