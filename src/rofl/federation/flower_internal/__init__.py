"""Everything that uses non-public parts of flwr: a new Flower version changes this folder only.

Public are `flwr.app`, `flwr.clientapp`, `flwr.serverapp` and `flwr.serverapp.strategy`; the rest of flwr may be
imported here only (`tests/federation/test_flower_internal.py`). May import: errors and `federation.protocol`.
"""
