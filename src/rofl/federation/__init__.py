"""Sites that learn together over a network, on Flower: coordinator, site, and the protocol between them.

May import: core, data, models, methods, audit, config, simulation, training. Parts of flwr that are not its
public interface are imported in `flower_internal` alone.
"""

from rofl.federation.client_app import Client, SiteData, make_client_app
from rofl.federation.flower_engine import FlowerEngine, Timeouts
from rofl.federation.flower_internal.in_memory_grid import InMemoryGrid
from rofl.federation.strategy import MethodStrategy

__all__ = ["Client", "FlowerEngine", "InMemoryGrid", "MethodStrategy", "SiteData", "Timeouts", "make_client_app"]
