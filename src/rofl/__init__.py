"""Federated learning when labels are wrong.

The names below are the public interface; each is imported when it is first used, since torch takes seconds.
"""

from typing import TYPE_CHECKING, Any

from rofl.core.version import __version__ as __version__

if TYPE_CHECKING:
    from rofl.config.presets import from_data, preset
    from rofl.config.schema import Experiment
    from rofl.data.in_memory.load_object import as_dataset
    from rofl.data.user import check_user_data as check_data
    from rofl.errors import Interrupted, UserError
    from rofl.federation.coordinator import resume_serve, serve
    from rofl.federation.site import join
    from rofl.report import write_report
    from rofl.reproduce.run_plans import benchmark
    from rofl.reproduce.run_plans import reproduce as reproduce_tables
    from rofl.training.compare_runs import compare
    from rofl.training.estimator import FederatedClassifier
    from rofl.training.label_audit import audit_data, audit_run
    from rofl.training.records import RoundRecord, RunSummary
    from rofl.training.runner import Run, resume, run
    from rofl.training.saved_model.evaluate_data import evaluate_data as evaluate
    from rofl.training.saved_model.export_model import export_model
    from rofl.training.saved_model.load_model import load_model as load
    from rofl.training.saved_model.predict_data import predict_data as predict
    from rofl.training.saved_model.trained_model import TrainedModel

# public name -> module below rofl, and the name there. A function cannot have the name of a room (audit, report,
# reproduce): importing the room would replace it.
_PUBLIC = {
    "Experiment": ("config.schema", "Experiment"),
    "FederatedClassifier": ("training.estimator", "FederatedClassifier"),
    "Interrupted": ("errors", "Interrupted"),
    "RoundRecord": ("training.records", "RoundRecord"),
    "Run": ("training.runner", "Run"),
    "RunSummary": ("training.records", "RunSummary"),
    "TrainedModel": ("training.saved_model.trained_model", "TrainedModel"),
    "UserError": ("errors", "UserError"),
    "as_dataset": ("data.in_memory.load_object", "as_dataset"),
    "audit_data": ("training.label_audit", "audit_data"),
    "audit_run": ("training.label_audit", "audit_run"),
    "benchmark": ("reproduce.run_plans", "benchmark"),
    "check_data": ("data.user", "check_user_data"),
    "compare": ("training.compare_runs", "compare"),
    "evaluate": ("training.saved_model.evaluate_data", "evaluate_data"),
    "export_model": ("training.saved_model.export_model", "export_model"),
    "from_data": ("config.presets", "from_data"),
    "join": ("federation.site", "join"),
    "load": ("training.saved_model.load_model", "load_model"),
    "predict": ("training.saved_model.predict_data", "predict_data"),
    "preset": ("config.presets", "preset"),
    "reproduce_tables": ("reproduce.run_plans", "reproduce"),
    "resume": ("training.runner", "resume"),
    "resume_serve": ("federation.coordinator", "resume_serve"),
    "run": ("training.runner", "run"),
    "serve": ("federation.coordinator", "serve"),
    "write_report": ("report", "write_report"),
}
_RENAMED = {"own": "from_data"}  # names of 0.1

__all__ = [
    "Experiment",
    "FederatedClassifier",
    "Interrupted",
    "RoundRecord",
    "Run",
    "RunSummary",
    "TrainedModel",
    "UserError",
    "as_dataset",
    "audit_data",
    "audit_run",
    "benchmark",
    "check_data",
    "compare",
    "evaluate",
    "export_model",
    "from_data",
    "join",
    "load",
    "predict",
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
