"""Non-public parts of flwr are imported in one folder only; read from the source, nothing is imported."""

import ast
import inspect
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "rofl"
FOLDER = SOURCE / "federation" / "flower_internal"
PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy"}


def non_public_imports(text: str) -> Iterator[str]:
    """Yield the modules of flwr that a file imports and that are not public, wherever in the file."""
    for node in ast.walk(ast.parse(text)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = named if node.module == "flwr" else [node.module]
        yield from (name for name in modules if name.partition(".")[0] == "flwr" and name not in PUBLIC)


def test_only_one_folder_imports_non_public_flwr() -> None:
    files = [path for path in SOURCE.rglob("*.py") if FOLDER not in path.parents]
    assert len(files) > 100
    wrong = {str(path.relative_to(SOURCE)): list(non_public_imports(path.read_text())) for path in files}
    assert {path: names for path, names in wrong.items() if names} == {}
    assert any(list(non_public_imports(path.read_text())) for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize(
    "line",
    [
        "from flwr.common.constant import ErrorCode",
        "import flwr.proto.fleet_pb2",
        "from flwr import common",
        "from flwr.app.user_config import UserConfig",
        "def later():\n    from flwr.supercore import log",
    ],
)
def test_every_spelling_of_such_an_import_is_seen(line: str) -> None:
    assert list(non_public_imports(line))


def test_a_supernode_looks_for_answers_soon_and_then_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")
    from importlib import import_module

    from rofl.federation.flower_internal import supernode_program

    source = inspect.getsource(import_module("flwr.supernode.start_client_internal"))
    assert source.count("time.sleep(0.5)") == 2  # where it waits for an answer, and for its parts
    waits: list[float] = []
    monkeypatch.setattr(supernode_program.time, "sleep", waits.append)
    patient = supernode_program.PatientTime()
    for _ in range(30):
        patient.sleep(0.5)
    patient.sleep(3)
    assert waits[0] == 0.02
    assert waits[:30] == sorted(waits[:30])
    assert waits[29:] == [0.5, 3]
    assert sum(waits[:12]) < 0.7  # twelve looks in the time of one
    assert patient.monotonic is time.monotonic


def test_public_imports_are_allowed() -> None:
    assert not list(non_public_imports("from flwr.app import Message\nfrom flwr.serverapp.strategy import Strategy"))
