"""Runs: train an experiment into a run directory, resume it, audit its labels, and the records of what happened.

May import: core, data, models, methods, audit, config, simulation.
"""
