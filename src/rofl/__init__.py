"""Federated learning when labels are wrong.

The names below are the public interface; each is imported when it is first used, since torch takes seconds.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rofl.config.presets import from_data, preset
    from rofl.config.schema import Experiment
    from rofl.data.user import check_user_data as check_data
    from rofl.errors import Interrupted, UserError
    from rofl.federation.coordinator import resume_serve, serve
    from rofl.federation.site import join
    from rofl.report import write_report
    from rofl.reproduce.run_tables import reproduce as reproduce_tables
    from rofl.training.compare_runs import compare
    from rofl.training.label_audit import audit_data, audit_run
    from rofl.training.records import RoundRecord, RunSummary
    from rofl.training.runner import Run, resume, run

# public name -> module below rofl, and the name there. A function cannot have the name of a room (audit, report,
# reproduce): importing the room would replace it.
_PUBLIC = {
    "Experiment": ("config.schema", "Experiment"),
    "Interrupted": ("errors", "Interrupted"),
    "RoundRecord": ("training.records", "RoundRecord"),
    "Run": ("training.runner", "Run"),
    "RunSummary": ("training.records", "RunSummary"),
    "UserError": ("errors", "UserError"),
    "audit_data": ("training.label_audit", "audit_data"),
    "audit_run": ("training.label_audit", "audit_run"),
    "check_data": ("data.user", "check_user_data"),
    "compare": ("training.compare_runs", "compare"),
    "from_data": ("config.presets", "from_data"),
    "join": ("federation.site", "join"),
    "preset": ("config.presets", "preset"),
    "reproduce_tables": ("reproduce.run_tables", "reproduce"),
    "resume": ("training.runner", "resume"),
    "resume_serve": ("federation.coordinator", "resume_serve"),
    "run": ("training.runner", "run"),
    "serve": ("federation.coordinator", "serve"),
    "write_report": ("report", "write_report"),
}
_RENAMED = {"own": "from_data"}  # names of 0.1

__all__ = [
    "Experiment",
    "Interrupted",
    "RoundRecord",
    "Run",
    "RunSummary",
    "UserError",
    "audit_data",
    "audit_run",
    "check_data",
    "compare",
    "from_data",
    "join",
    "preset",
    "reproduce_tables",
    "resume",
    "resume_serve",
    "run",
    "serve",
    "write_report",
]

if not TYPE_CHECKING:  # mypy would take any name for a good one

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        name = _RENAMED.get(name, name)
        if name not in _PUBLIC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, attribute = _PUBLIC[name]
        return getattr(import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
