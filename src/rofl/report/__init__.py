"""HTML pages about finished runs, the paper's tables and benchmarks, and character graphics for the terminal.

`page`, `paper_page` and `benchmark_page` write HTML files. `sections` has one module per part of a run's page,
`templates` one Jinja template per section, and `static` the style sheets and scripts. `terminal` draws with
characters. `live` shows a running run in a browser.

May import: core, data, models, methods, audit, config, simulation, training, reproduce.
"""

from rofl.report.audience import Audience
from rofl.report.benchmark_page import write_benchmark_page
from rofl.report.page import write_report
from rofl.report.paper_page import write_paper_page
from rofl.report.ranking_picture import write_ranking_picture

__all__ = ["Audience", "write_benchmark_page", "write_paper_page", "write_ranking_picture", "write_report"]
