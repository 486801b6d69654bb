"""Imports go one way; read from the source, nothing is imported."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "rofl"
FILES = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}

# Each room may import from those named here, and from all that these may import from.
DOORS = {
    "errors": [],
    "atomic": [],
    "locks": ["errors"],
    "core": ["errors", "atomic"],
    "data": ["core"],
    "models": ["core"],
    "methods": ["data", "models"],
    "engines": ["methods"],
    "audit": ["core"],
    "config": ["engines"],
    "scene_file": ["config"],
    "labels_file": ["data"],
    "scene": ["scene_file", "labels_file"],
    "run_folder": ["config"],
    "verdict": ["scene", "run_folder", "audit"],
    "privacy_budget": ["config"],
    "course": ["run_folder", "privacy_budget"],
    "experiment": ["course", "verdict"],
    "auditing": ["experiment"],
    "presets": ["experiment"],
    "trackers": ["experiment"],
    "federation": ["presets", "locks"],
    "reproduce": ["presets", "locks"],
    "report": ["reproduce"],
    "__init__": ["presets"],
    "cli": ["__init__", "report", "trackers", "auditing", "federation"],
    "__main__": ["cli"],
}
HOMES = {
    "flwr": ("engines/flower/", "federation/"),
    "plotly": "report/",
    "pandas": "audit/",
    "typer": "cli/",
    "rich": "cli/",
    "tensorboard": "trackers/",
    "mlflow": "trackers/",
    "opacus": "privacy_budget.py",
}


def below(room: str) -> set[str]:
    return set(DOORS[room]).union(*(below(other) for other in DOORS[room]))


def room_of(place: str) -> str:
    return place.partition("/")[0].removesuffix(".py")


def imports(place: str, text: str) -> Iterator[str]:
    """Every imported name with all its dots, wherever in the file it stands."""
    package = ["rofl", *place.split("/")[:-1]]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield from (".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names)


def wrong_imports(place: str, text: str) -> list[str]:
    """What a file imports and may not."""
    own = room_of(place)
    wrong = []
    for name in imports(place, text):
        top, _, rest = name.partition(".")
        inner = rest.partition(".")[0]
        target = inner if inner in DOORS else "__init__"
        if (top == "rofl" and target not in {own, *below(own)}) or not place.startswith(HOMES.get(top, "")):
            wrong.append(f"{place} imports {name}")
    return wrong


def test_every_file_has_a_room() -> None:
    assert len(FILES) > 40
    assert {room_of(place) for place in FILES} == DOORS.keys()


def test_the_arrows_hold() -> None:
    assert [wrong for place, text in FILES.items() for wrong in wrong_imports(place, text)] == []


def test_only_the_command_line_prints() -> None:
    printing = {
        place
        for place, text in FILES.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert all(place.startswith("cli/") for place in printing)


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
    ):
        assert wrong_imports("data/new.py", line), line
    for line in ("from rofl.core import noise", "from . import sets", "from rofl import atomic", "import torch"):
        assert not wrong_imports("data/new.py", line), line
