"""Run folders to one self-contained HTML page, and small pictures for the terminal."""

from rofl.report.grids import write_grids
from rofl.report.page import write

__all__ = ["write", "write_grids"]
