"""The public surface: what `import rofl` offers, and that it works from a plain script."""

import inspect
import subprocess
import sys
import typing

import pytest

import rofl

SCRIPT = """
import sys
import rofl

few = rofl.preset("digits", rounds=1, data__train=60, data__test=20, clients=2, cohort=2, model__name="mlp")
modules = []
run = rofl.run(few, "out", workers=1, listener=lambda *_: modules.extend(sys.modules))
print(run.summary.digest, *{name.partition(".")[0] for name in modules})
"""


def test_the_public_names_are_these() -> None:
    commands = {
        "as_dataset",
        "audit_data",
        "audit_run",
        "benchmark",
        "check_data",
        "compare",
        "join",
        "reproduce_tables",
        "resume",
        "run",
    }
    commands |= {
        "resume_serve",
        "serve",
        "write_report",
        "evaluate",
        "export_model",
        "from_data",
        "load",
        "predict",
        "preset",
    }
    types = {
        "Experiment",
        "FederatedClassifier",
        "Interrupted",
        "RoundRecord",
        "Run",
        "RunSummary",
        "TrainedModel",
        "UserError",
    }
    assert set(rofl.__all__) == commands | types
    assert all(getattr(rofl, name).__doc__ for name in rofl.__all__)
    assert rofl.own is rofl.from_data  # as 0.1 called it


@pytest.mark.parametrize("name", [name for name in rofl.__all__ if name[0].islower()])
def test_public_functions_say_what_they_take_and_return(name: str) -> None:
    function = getattr(rofl, name)
    parameters = inspect.signature(function).parameters
    assert len(parameters) <= 8
    assert len(parameters) < 3 or "Args:" in function.__doc__
    hints = typing.get_type_hints(function)
    assert hints.keys() >= parameters.keys()
    assert hints["return"] is not type(None) or name == "join"


def test_a_script_without_a_main_guard_can_use_workers_and_trains_without_scikit_learn(tmp_path) -> None:
    """Scikit-learn and others take seconds to import; the audit after the last round may need them."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    digest, *packages = done.stdout.split()
    assert len(digest) == 64
    assert "torch" in packages
    assert not set(packages) & {"plotly", "sklearn", "scipy", "pandas", "pyarrow", "flwr"}
