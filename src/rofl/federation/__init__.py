"""Federations over a network, on Flower: the coordinator (`serve`), a site (`join`), and the protocol between them.

May import: core, data, models, methods, audit, config, simulation, training. Only `flower_internal` imports non-public
parts of flwr. The names below are imported lazily, because the gateway's process needs neither them nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rofl.federation.client_app import Client, SiteData, make_client_app
    from rofl.federation.flower_engine import FlowerEngine
    from rofl.federation.site_evaluation import SiteEvaluation
    from rofl.federation.site_info import SiteInfo
    from rofl.federation.site_report import SiteReport
    from rofl.federation.strategy import MethodStrategy

_PUBLIC = {  # name -> module below this one
    "Client": "client_app",
    "FlowerEngine": "flower_engine",
    "MethodStrategy": "strategy",
    "SiteData": "client_app",
    "SiteEvaluation": "site_evaluation",
    "SiteInfo": "site_info",
    "SiteReport": "site_report",
    "make_client_app": "client_app",
}

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


if not TYPE_CHECKING:  # with __getattr__, mypy would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _PUBLIC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
