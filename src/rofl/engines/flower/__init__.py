"""Flower as an engine: the same clients and the same server step, on machines of their own."""

from rofl.engines.flower.client_app import Host, Seat, make_client_app
from rofl.engines.flower.federation import Federation, Terms
from rofl.engines.flower.grids import DirectGrid
from rofl.engines.flower.strategy import MethodStrategy

__all__ = ["DirectGrid", "Federation", "Host", "MethodStrategy", "Seat", "Terms", "make_client_app"]
