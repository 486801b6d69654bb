"""Runs: train an experiment into a run directory, resume it, audit its labels; the records of a run.

May import: core, data, models, methods, audit, config, simulation.
"""
