"""Clients on this machine: the one place where a client runs, worker processes, and rounds.

May import: core, data, models, methods.
"""
