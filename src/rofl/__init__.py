"""Federated learning when labels are wrong."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rofl.config import Experiment
    from rofl.errors import UserError
    from rofl.experiment import Run, resume, run
    from rofl.presets import own, preset

__all__ = ["Experiment", "Run", "UserError", "own", "preset", "resume", "run"]

# A name is imported when it is asked for: torch takes seconds, and `rofl --help` does without.
_HOMES = {
    "Experiment": "config",
    "Run": "experiment",
    "UserError": "errors",
    "own": "presets",
    "preset": "presets",
    "resume": "experiment",
    "run": "experiment",
}

if not TYPE_CHECKING:  # mypy would take any name for a good one

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
