"""Pages about finished runs and about the paper's tables, and small pictures for the terminal.

`page` and `paper_page` write HTML files; `sections` has a module per part of a run's page, `templates` a Jinja
template for each, `static` the style sheets and scripts. `terminal` draws with characters. `live` shows a run in a
browser as it goes.

May import: core, data, models, methods, audit, config, simulation, training, reproduce.
"""

from rofl.report.audience import Audience
from rofl.report.page import write_report
from rofl.report.paper_page import write_paper_page

__all__ = ["Audience", "write_paper_page", "write_report"]
