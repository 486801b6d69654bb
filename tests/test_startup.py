"""What is imported before it is needed: nothing slow. Counted in modules, since seconds depend on the machine."""

import json
import subprocess
import sys

import pytest

import rofl

SLOW = {"torch", "numpy", "pandas", "plotly", "sklearn", "scipy", "pyarrow", "flwr", "pydantic", "PIL"}
SLOW |= {"mlflow", "tensorboard"}
CALL = "import sys; sys.argv = ['rofl', *{arguments}]; from rofl.cli import main; main()"
TELL = "import atexit, json, sys; atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"


def imported(script: str) -> set[str]:
    """The packages that a fresh process has at its end; it may end with an error, but not with an exception."""
    done = subprocess.run([sys.executable, "-c", TELL + script], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="nothing"),
        pytest.param(["--help"], id="help"),
        pytest.param(["--version"], id="version"),
        pytest.param(["run", "--help"], id="help of a command"),
        pytest.param(["run", "--nonsense"], id="no such option"),
        pytest.param(["reproduce", "--scale", "huge"], id="no such choice"),
        pytest.param(["audit"], id="no such combination"),
    ],
)
def test_what_needs_no_torch_does_not_import_it(arguments: list[str]) -> None:
    packages = imported(CALL.format(arguments=arguments))
    assert "typer" in packages
    assert not packages & SLOW


def test_a_worker_imports_what_a_client_needs_and_no_more() -> None:
    packages = imported("import rofl.simulation.worker")
    assert "torch" in packages
    assert not packages & {"plotly", "sklearn", "scipy", "pandas", "pyarrow", "PIL", "flwr", "typer", "rich"}


def test_the_gateway_imports_no_torch() -> None:
    """It has nothing to compute, and is started again while sites wait for it."""
    pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")
    packages = imported("import rofl.federation.gateway.program")
    assert "uvicorn" in packages
    assert not packages & {"torch", "pandas", "plotly", "sklearn", "scipy", "pyarrow"}


def test_names_come_when_they_are_asked_for() -> None:
    assert not imported("import rofl, rofl.errors; rofl.UserError; dir(rofl)") & SLOW
    assert set(rofl.__all__) <= set(dir(rofl))
    assert not hasattr(rofl, "nonsense")
