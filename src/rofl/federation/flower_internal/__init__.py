"""All uses of non-public parts of flwr, so that a new Flower version affects this folder only.

The public modules are `flwr.app`, `flwr.clientapp`, `flwr.serverapp` and `flwr.serverapp.strategy`. Only this folder
may import other parts of flwr (`tests/federation/test_flower_internal.py`). May import: errors and
`federation.protocol`.
"""
