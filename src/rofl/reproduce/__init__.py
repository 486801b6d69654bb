"""Every table and figure of the paper by name."""

from rofl.reproduce.grid import Cell, Grid, Scale
from rofl.reproduce.plan import GRIDS, Plan, find, make_plan
from rofl.reproduce.scales import experiment_of

__all__ = ["GRIDS", "Cell", "Grid", "Plan", "Scale", "experiment_of", "find", "make_plan"]
