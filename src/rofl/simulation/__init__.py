"""Simulation of federated learning on one machine: clients, worker processes and rounds.

`engine.Simulation` is the entry: it samples cohorts, lets a `worker_pool.WorkerPool` train their clients, and adds the
updates. May import: core, data, models, methods.
"""
