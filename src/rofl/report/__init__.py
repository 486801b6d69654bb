"""Run folders to one self-contained HTML page, and small pictures for the terminal.

May import: core, data, models, methods, audit, config, simulation, training, reproduce.
"""

from rofl.report.audience import Audience
from rofl.report.page import write_report
from rofl.report.paper_page import write_paper_page

__all__ = ["Audience", "write_paper_page", "write_report"]
