"""Federated learning when labels are wrong."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rofl.config.presets import from_data, preset
    from rofl.config.schema import Experiment
    from rofl.errors import UserError
    from rofl.training.run import Run, resume, run

__all__ = ["Experiment", "Run", "UserError", "from_data", "preset", "resume", "run"]

# A name is imported when it is asked for: torch takes seconds, and `rofl --help` does without.
_MODULES = {
    "Experiment": "config.schema",
    "Run": "training.run",
    "UserError": "errors",
    "from_data": "config.presets",
    "preset": "config.presets",
    "resume": "training.run",
    "run": "training.run",
}
_RENAMED = {"own": "from_data"}  # names of 0.1

if not TYPE_CHECKING:  # mypy would take any name for a good one

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        name = _RENAMED.get(name, name)
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
