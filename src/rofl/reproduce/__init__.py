"""The paper's tables and figures by name: their cells, plans of what to run, runs of cells, and results.

May import: core, data, models, methods, audit, config, simulation, training.
"""

from rofl.reproduce.cell_runner import CellProgress
from rofl.reproduce.cost import PlanCost, plan_cost
from rofl.reproduce.markdown import write_markdown
from rofl.reproduce.paper_table import PaperTable, Scale, TableCell
from rofl.reproduce.plan import PAPER_TABLES, Plan, find_tables, make_plan
from rofl.reproduce.results import CellResult, TableResult
from rofl.reproduce.run_tables import reproduce
from rofl.reproduce.scales import cell_experiment

__all__ = [
    "PAPER_TABLES",
    "CellProgress",
    "CellResult",
    "PaperTable",
    "Plan",
    "PlanCost",
    "Scale",
    "TableCell",
    "TableResult",
    "cell_experiment",
    "find_tables",
    "make_plan",
    "plan_cost",
    "reproduce",
    "write_markdown",
]
