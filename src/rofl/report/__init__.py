"""Run folders to one self-contained HTML page, and small pictures for the terminal."""

from rofl.report.grids import write_grids
from rofl.report.page import write
from rofl.report.views import View

__all__ = ["View", "write", "write_grids"]
