"""Every table and figure of the paper by name.

May import: core, data, models, methods, audit, config, simulation, training.
"""

from rofl.reproduce.paper_table import PaperTable, Scale, TableCell
from rofl.reproduce.plan import PAPER_TABLES, Plan, find_tables, make_plan
from rofl.reproduce.scales import cell_experiment

__all__ = ["PAPER_TABLES", "PaperTable", "Plan", "Scale", "TableCell", "cell_experiment", "find_tables", "make_plan"]
