"""Non-public parts of flwr are imported in one folder only; read from the source, nothing is imported."""

import ast
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


def test_public_imports_are_allowed() -> None:
    assert not list(non_public_imports("from flwr.app import Message\nfrom flwr.serverapp.strategy import Strategy"))
