"""The paper's tables and figures, and benchmarks: their cells, plans, runs and results.

May import: core, data, models, methods, audit, config, simulation, training.
"""

from rofl.reproduce.benchmark_plan import BenchmarkPlan, make_benchmark_plan
from rofl.reproduce.benchmark_tables import BENCHMARKS, benchmark_rows
from rofl.reproduce.cell_runner import CellProgress
from rofl.reproduce.leaderboard import Leaderboard, MethodCost
from rofl.reproduce.markdown import write_markdown
from rofl.reproduce.paper_table import PaperTable, Scale, TableCell
from rofl.reproduce.plan import PAPER_TABLES, Plan, find_tables, make_plan
from rofl.reproduce.ranking import RankedMethod, Ranking
from rofl.reproduce.results import CellResult, TableResult
from rofl.reproduce.run_plans import PlanCost, benchmark, plan_cost, reproduce
from rofl.reproduce.scales import cell_experiment

__all__ = [
    "BENCHMARKS",
    "PAPER_TABLES",
    "BenchmarkPlan",
    "CellProgress",
    "CellResult",
    "Leaderboard",
    "MethodCost",
    "PaperTable",
    "Plan",
    "PlanCost",
    "RankedMethod",
    "Ranking",
    "Scale",
    "TableCell",
    "TableResult",
    "benchmark",
    "benchmark_rows",
    "cell_experiment",
    "find_tables",
    "make_benchmark_plan",
    "make_plan",
    "plan_cost",
    "reproduce",
    "write_markdown",
]
