"""Federations over a network, on Flower: the coordinator (`serve`), a site (`join`), and the protocol between them.

May import: core, data, models, methods, audit, config, simulation, training. Parts of flwr that are not its
public interface are imported in `flower_internal` only.
"""

from rofl.federation.client_app import Client, SiteData, make_client_app
from rofl.federation.flower_engine import FlowerEngine
from rofl.federation.site_records import SiteEvaluation, SiteInfo, SiteReport
from rofl.federation.strategy import MethodStrategy

__all__ = [
    "Client",
    "FlowerEngine",
    "MethodStrategy",
    "SiteData",
    "SiteEvaluation",
    "SiteInfo",
    "SiteReport",
    "make_client_app",
]
