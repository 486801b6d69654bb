"""Imports go one way; read from the source, nothing is imported."""

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "rofl"
FILES = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}

# What each room may import from besides itself and `errors`; the docstring of its `__init__` says the same.
DOORS: dict[str, list[str]] = {
    "errors": [],
    "core": [],
    "data": ["core"],
    "models": ["core", "data"],
    "methods": ["core", "data", "models"],
    "audit": ["core", "data"],
    "config": ["core", "data", "models", "methods"],
    "simulation": ["core", "data", "models", "methods"],
    "training": ["core", "data", "models", "methods", "audit", "config", "simulation"],
    "tracking": ["core", "data", "models", "methods", "audit", "config", "simulation", "training"],
    "reproduce": ["core", "data", "models", "methods", "audit", "config", "simulation", "training"],
    "report": ["core", "data", "models", "methods", "audit", "config", "simulation", "training", "reproduce"],
    "federation": ["core", "data", "models", "methods", "audit", "config", "simulation", "training"],
}
DOORS["cli"] = [room for room in DOORS if room != "errors"]
DOORS["__init__"] = [room for room in DOORS if room not in ("errors", "cli")]  # each name is imported when asked for
DOORS["__main__"] = ["cli"]
MAY_IMPORT_THE_PACKAGE = ("cli", "__main__")  # `import rofl`, for its public names

# Third-party packages that one place alone may import.
HOMES = {
    "flwr": "federation/",
    "plotly": "report/",
    "jinja2": "report/",
    "pandas": "audit/",
    "typer": "cli/",
    "rich": "cli/",
    "tensorboard": "tracking/",
    "mlflow": "tracking/",
    "pydicom": "data/dicom.py",
    "tokenizers": "data/token_numbers.py",
    "peft": "models/lora.py",
    "timm": "models/timm_network.py",
    "transformers": "models/hf_network.py",
    "opacus": "training/privacy_budget.py",
    "ray": "reproduce/ray_cells.py",
    "onnxruntime": "training/saved_model/traced_export.py",
}
PUBLIC_FLOWER = {"flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy"}
FLOWER_INTERNAL = "federation/flower_internal/"  # for all other modules of flwr
NOT_MODULES = {"rofl.methods", "rofl.models", "rofl.datasets", "rofl.folder"}  # groups of entry points; a tag in MLflow


@functools.cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def room_of(path: str) -> str:
    return path.partition("/")[0].removesuffix(".py")


def imports(path: str, text: str) -> Iterator[str]:
    """Every imported name with all its dots, wherever in the file it stands."""
    package = ["rofl", *path.split("/")[:-1]]
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield from (".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names)


def named_modules(text: str) -> Iterator[str]:
    """Every `rofl.x.y` or `rofl.x.y:name` in a string: what is imported or run by name.

    Docstrings and calls that a message proposes, such as `rofl.resume(RUN)`, are left out.
    """
    tree = parsed(text)
    docstrings = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node) is not None
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield from re.findall(r"(?<![\w.])rofl(?:\.\w+)+(?::\w+)?(?![\w(])", node.value)


def module_file(dotted: str) -> str | None:
    """The file of a module such as `rofl.data.dataset`, or None where there is none."""
    place = "/".join(dotted.split(".")[1:])
    return next((path for path in (f"{place}.py", f"{place}/__init__.py") if path in FILES), None)


def top_names(path: str) -> set[str]:
    """Names that a module defines or imports at its top level."""
    found = set()
    for node in parsed(FILES[path]).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def may_import(path: str, name: str) -> bool:
    """Whether a file may import a name, such as `rofl.core.noise.corrupt` or `torch`."""
    own = room_of(path)
    top, _, rest = name.partition(".")
    if top == "flwr" and not path.startswith(FLOWER_INTERNAL):
        return path.startswith(HOMES["flwr"]) and (name in PUBLIC_FLOWER or name.rpartition(".")[0] in PUBLIC_FLOWER)
    if top != "rofl":
        return path.startswith(HOMES.get(top, ""))
    room = rest.partition(".")[0]
    if room not in DOORS or room == "__init__":
        return own in MAY_IMPORT_THE_PACKAGE
    return room in ("errors", own, *DOORS[own])


def wrong_imports(path: str, text: str) -> list[str]:
    """What a file imports and may not, by statement or by a module's name in a string."""
    strings = {name.partition(":")[0] for name in named_modules(text)} - NOT_MODULES
    return [f"{path} imports {name}" for name in (*imports(path, text), *strings) if not may_import(path, name)]


def test_every_file_has_a_room_and_there_are_few() -> None:
    assert len(FILES) > 40
    assert {room_of(path) for path in FILES} == DOORS.keys()
    assert len(DOORS.keys() - {"__init__", "__main__"}) <= 14
    assert [path for path in FILES if "/" not in path] == ["__init__.py", "__main__.py", "errors.py"]


def test_rooms_are_in_an_order_without_circles() -> None:
    order = list(DOORS)
    assert all(order.index(below) < order.index(room) for room, others in DOORS.items() for below in others)


def test_the_arrows_hold() -> None:
    assert [wrong for path, text in FILES.items() for wrong in wrong_imports(path, text)] == []


def test_modules_that_strings_name_exist() -> None:
    found = {(path, name) for path, text in FILES.items() for name in named_modules(text)}
    scripts = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]["scripts"]
    found |= {("pyproject.toml", target) for target in scripts.values()}
    missing = []
    for path, name in sorted(found):
        module, _, attribute = name.partition(":")
        file = module_file(module)
        if module not in NOT_MODULES and (file is None or (attribute and attribute not in top_names(file))):
            missing.append(f"{path} names {name}")
    assert missing == []
    assert {name for _, name in found} >= {"rofl.simulation.worker", "rofl.federation.apps:server_app"}


def test_public_names_are_where_the_table_of_the_package_says() -> None:
    table = next(
        ast.literal_eval(node.value)
        for node in parsed(FILES["__init__.py"]).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_PUBLIC"
    )
    assert len(table) > 5
    for module, name in table.values():
        file = module_file(f"rofl.{module}")
        assert file is not None, module
        assert name in top_names(file), (name, module)
        assert may_import("__init__.py", f"rofl.{module}"), module


@pytest.mark.parametrize("room", [room for room in DOORS if f"{room}/__init__.py" in FILES])
def test_a_room_says_what_it_may_import(room: str) -> None:
    text = " ".join((ast.get_docstring(parsed(FILES[f"{room}/__init__.py"])) or "").split())
    listed = re.search(r"May import: ([\w, ]+)\.", text)
    assert listed is not None, "its docstring has no line such as 'May import: core, data.'"
    names = [] if listed[1] == "nothing" else listed[1].replace(" and ", ", ").split(", ")
    everything = room == "cli" and names == ["everything"]
    assert everything or sorted(names) == sorted(DOORS[room])


def test_only_the_command_line_prints() -> None:
    printing = {
        path
        for path, text in FILES.items()
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert all(path.startswith("cli/") for path in printing)


def test_an_arrow_that_points_up_is_seen_in_every_spelling() -> None:
    for line in (
        "from rofl.methods import Rofl",
        "import rofl.methods.base",
        "from rofl import methods",
        "from ..methods import Rofl",
        "def later():\n    from rofl.methods import Rofl",
        "import rofl",
        "import plotly.express",
        "from rich.table import Table",
        "import_module('rofl.methods.base')",
        "run(['-m', 'rofl.cli'])",
        "LAZY = {'x': 'rofl.training.runner:resume'}",
        "from flwr.app import Message",
    ):
        assert wrong_imports("data/new.py", line), line
    for line in ("from rofl.core import noise", "from . import sets", "from rofl import errors", "import torch"):
        assert not wrong_imports("data/new.py", line), line
    assert not wrong_imports("data/new.py", "'''Called by rofl.training.runner.'''")
    assert not wrong_imports("data/new.py", "raise UserError('No data.', 'rofl.resume(RUN, data=...)')")


def test_flower_outside_its_public_interface_is_one_folders_work() -> None:
    for line in (
        "from flwr.common.constant import ErrorCode",
        "import flwr.proto.fleet_pb2",
        "from flwr import common",
    ):
        assert wrong_imports("federation/new.py", line), line
        assert not wrong_imports("federation/flower_internal/new.py", line), line
    assert not wrong_imports("federation/new.py", "from flwr.serverapp.strategy import Strategy")


def test_the_page_to_find_ones_way_names_what_is_there() -> None:
    docs = SOURCE.parents[1] / "docs"
    page = (docs / "architecture.md").read_text()
    named = {name for name in re.findall(r"`([a-z0-9_]+/[\w/.]*)`", page) if name.partition("/")[0] in DOORS}
    assert len(named) > 30
    assert sorted(name for name in named if not (SOURCE / name).exists()) == []
    drawing = (docs / "images" / "rooms.svg").read_text()
    assert set(re.findall(r'class="n"[^>]*>(\w+)<', drawing)) == DOORS.keys() - {"__init__", "__main__"}
