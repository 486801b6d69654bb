"""Measure how easy the source is to read: rooms, docstrings, parameters, loose types, and two walks through the code.

    python -m benchmarks.marks                          # a Markdown table of this checkout
    python -m benchmarks.marks --source OLD/src/rofl    # of another one
    python -m benchmarks.marks --todo                   # which files miss which aim
    python -m benchmarks.marks --walks --write docs/decisions/0011-one-redesign.md

Everything but the walks is read from the syntax tree; neither rofl nor torch is imported. The walks run real commands
(`benchmarks.walks`) and take a minute or two, so they are measured with `--walks` only.
"""

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

SOURCE = Path(__file__).parents[1] / "src" / "rofl"
PUBLIC_FLOWER = ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy")
MAX_PARAMETERS, MANY_PARAMETERS, ARGS_FROM = 8, 6, 3
BARE_NAMES = ("read", "load", "write")
FLOWER_FOLDER = "federation/flower_internal"
LOW_RATIO = 0.3
LOCAL_WALK, FLOWER_WALK = "local walk: files / room changes", "Flower walk: files / room changes"
BY_HAND = "files for a method / data set / model / report column / CLI option / wire change (by hand)"
AIMS = {
    LOCAL_WALK: "<= 45 / <= 50",
    FLOWER_WALK: "<= 40 / <= 45",
    BY_HAND: "2 / 2 / 2 / 3 / 3 / 5",
    "rooms (of them single files)": "<= 14 (1)",
    "docstring lines / code lines": ">= 0.35",
    "public functions with 3 or more parameters that have `Args:`": "all",
    "public names without a docstring": "0",
    "`dict[str, Any]` and `Mapping[str, Any]`": "< 20",
    "non-public flwr imports": "1 folder",
    "functions with more than 6 / 8 parameters (most)": "< 5 / 0 (8)",
    "file names used more than once": "0",
    "module functions named just `read` / `load` / `write`": "0 / 0 / 0",
}
_START, _END = "<!-- marks -->", "<!-- end of marks -->"
_NOT_ROOMS = ("__init__", "__main__", "py.typed", "__pycache__")
_LOOSE = re.compile(r"\b(?:dict|Mapping)\[str, Any\]")
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Function:
    """A function or method as its signature shows it; a class stands for its constructor."""

    path: str  # below the source folder, with slashes
    name: str  # with the class, where it has one
    line: int
    parameters: int  # without self and cls
    docstring: str
    public: bool  # no part of its name, nor of its module's, begins with an underscore
    command: bool  # a Typer command: its parameters are the command's options

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.name}"


@dataclass
class SourceFile:
    """One parsed file."""

    path: str
    tree: ast.Module
    text: str
    docstring_lines: int = 0
    code_lines: int = 0
    functions: list[Function] = field(default_factory=list)
    bases: dict[str, list[str]] = field(default_factory=dict)  # of each class, without modules and type parameters
    undocumented: list[str] = field(default_factory=list)

    @property
    def room(self) -> str:
        """The entry at the top of the package that the file belongs to."""
        return room_of(self.path)


def room_of(path: str) -> str:
    """Return the room of a file.

    >>> room_of("data/sources/mnist.py"), room_of("errors.py")
    ('data', 'errors')
    """
    return path.partition("/")[0].removesuffix(".py")


def rooms(source: Path) -> list[str]:
    """Return the packages and modules at the top of the source, without `__init__`, `__main__` and `py.typed`."""
    entries = {path.stem if path.suffix == ".py" else path.name for path in source.iterdir()}
    return sorted(entries.difference(_NOT_ROOMS))


def read_source(source: Path) -> list[SourceFile]:
    """Parse all files below a folder, in the order of their paths."""
    return [_parse(path.relative_to(source).as_posix(), path.read_text()) for path in sorted(source.rglob("*.py"))]


def _parse(path: str, text: str) -> SourceFile:
    file = SourceFile(path, ast.parse(text), text)
    docstrings = set(_docstring_lines(file.tree))
    code = set(_token_lines(text)) - docstrings
    file.docstring_lines, file.code_lines = len(docstrings), len(code)
    if not ast.get_docstring(file.tree) and file.code_lines:
        file.undocumented.append(path)
    _collect(file, file.tree, [])
    return file


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    """Yield the numbers of all lines that docstrings stand on, blank ones within them included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | Definition) and ast.get_docstring(node, clean=False) is not None:
            statement = node.body[0]
            yield from range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _token_lines(text: str) -> Iterator[int]:
    """Yield the numbers of all lines that hold a token other than a comment."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            yield from range(token.start[0], token.end[0] + 1)


def _collect(file: SourceFile, parent: ast.Module | Definition, outer: list[ast.ClassDef]) -> None:
    """Add the functions of a module or class to the file's list; functions inside functions are not looked at."""
    for node in parent.body:
        if not isinstance(node, Definition):
            continue
        names = [*(one.name for one in outer), node.name]
        public = not any(part.startswith("_") for part in names) and _is_public_module(file.path)
        constructor = node.name == "__init__" and outer and not outer[-1].name.startswith("_")
        docstring = ast.get_docstring(node) or ""
        if public and not docstring:
            file.undocumented.append(f"{file.path}:{node.lineno} {'.'.join(names)}")
        if isinstance(node, ast.ClassDef):
            file.bases[node.name] = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
            _collect(file, node, [*outer, node])
            continue
        if constructor:  # documented where the class is
            docstring = f"{ast.get_docstring(outer[-1]) or ''}\n{docstring}"
        file.functions.append(
            Function(
                path=file.path,
                name=".".join(names),
                line=node.lineno,
                parameters=_count_parameters(node, method=bool(outer)),
                docstring=docstring,
                public=public or (bool(constructor) and _is_public_module(file.path)),
                command=file.room == "cli" and any("command" in ast.unparse(one) for one in node.decorator_list),
            )
        )


def _is_public_module(path: str) -> bool:
    parts = path.removesuffix(".py").split("/")
    return not any(part.startswith("_") and part != "__init__" for part in parts)


def _count_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, method: bool) -> int:
    """Count what a caller passes: no self or cls, but *args and **kwargs."""
    given = node.args
    decorators = {ast.unparse(one) for one in node.decorator_list}
    count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
    return (
        count + (given.vararg is not None) + (given.kwarg is not None) - (method and "staticmethod" not in decorators)
    )


def flower_imports(files: list[SourceFile]) -> list[tuple[str, int, str]]:
    """Return (path, line, module) of every import of flwr that is not its public interface."""
    found = []
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            found += [
                (file.path, node.lineno, name)
                for name in names
                if name.partition(".")[0] == "flwr" and name not in PUBLIC_FLOWER
            ]
    return found


def loose_types(files: list[SourceFile]) -> Counter[str]:
    """Count `dict[str, Any]` and `Mapping[str, Any]` by file."""
    return Counter({file.path: found for file in files if (found := len(_LOOSE.findall(file.text)))})


def repeated_names(files: list[SourceFile]) -> dict[str, list[str]]:
    """Return the file names that are used more than once, with their paths; `__init__` is left out."""
    by_name: dict[str, list[str]] = {}
    for file in files:
        by_name.setdefault(file.path.rpartition("/")[2], []).append(file.path)
    return {name: paths for name, paths in by_name.items() if len(paths) > 1 and name != "__init__.py"}


def bare_names(files: list[SourceFile]) -> dict[str, list[Function]]:
    """Return the functions of modules (not methods) that are named `read`, `load` or `write` and nothing more."""
    functions = [one for file in files for one in file.functions]
    return {name: [one for one in functions if one.name == name] for name in BARE_NAMES}


def without_args(files: list[SourceFile]) -> tuple[list[Function], list[Function]]:
    """Return the public functions with three or more parameters, and those of them without `Args:`.

    Typer commands are left out: their options carry their own help. A constructor is explained by `Args:` or
    `Attributes:` of its class, and a method by `Args:` of the base class whose method it implements.
    """
    functions = [one for file in files for one in file.functions]
    bases = {name: found for file in files for name, found in file.bases.items()}
    methods = {one.name for one in functions if "." in one.name and _has_args(one)}

    def inherits(name: str) -> bool:
        owner, _, method = name.rpartition(".")
        above = [f"{base}.{method}" for base in bases.get(owner, [])]
        return any(each in methods or inherits(each) for each in above)

    many = [one for one in functions if one.public and not one.command and one.parameters >= ARGS_FROM]
    return many, [one for one in many if not _has_args(one) and not inherits(one.name)]


def _has_args(function: Function) -> bool:
    return "Args:" in function.docstring or "Attributes:" in function.docstring


def over(files: list[SourceFile], limit: int, commands: bool = False) -> list[Function]:
    """Return the functions with more parameters than `limit`, the longest signature first."""
    found = [one for file in files for one in file.functions if one.parameters > limit and one.command == commands]
    return sorted(found, key=lambda one: (-one.parameters, one.path))


def docstring_ratio(files: list[SourceFile]) -> float:
    """Return docstring lines over code lines."""
    return sum(file.docstring_lines for file in files) / max(sum(file.code_lines for file in files), 1)


def measure(source: Path) -> dict[str, str]:
    """Return every static mark of a source folder as text, keyed by its name in the table."""
    files = read_source(source)
    top = rooms(source)
    single = [room for room in top if (source / f"{room}.py").is_file()]
    flower = flower_imports(files)
    flower_files, flower_folders = {path for path, _, _ in flower}, {path.rpartition("/")[0] for path, _, _ in flower}
    many, missing = without_args(files)
    lines = [file.code_lines for file in files if file.code_lines]
    bare = bare_names(files)
    return {
        "rooms (of them single files)": f"{len(top)} ({len(single)})",
        "docstring lines / code lines": f"{docstring_ratio(files):.2f}",
        "public functions with 3 or more parameters that have `Args:`": f"{len(many) - len(missing)} of {len(many)}",
        "public names without a docstring": str(sum(len(file.undocumented) for file in files)),
        "`dict[str, Any]` and `Mapping[str, Any]`": str(loose_types(files).total()),
        "non-public flwr imports": f"{len(flower)} in {len(flower_files)} files of {len(flower_folders)} folders",
        "functions with more than 6 / 8 parameters (most)": _longest(files, commands=False),
        "Typer commands with more than 6 / 8 options (most)": _longest(files, commands=True),
        "file names used more than once": str(len(repeated_names(files))),
        "module functions named just `read` / `load` / `write`": " / ".join(str(len(bare[one])) for one in BARE_NAMES),
        "files, and code lines": f"{len(files)}, {sum(lines):,}",
        "code lines of a file, median (most)": f"{median(lines):.0f} ({max(lines)})",
    }


def _longest(files: list[SourceFile], commands: bool) -> str:
    found = [len(over(files, limit, commands)) for limit in (MANY_PARAMETERS, MAX_PARAMETERS)]
    most = max((one.parameters for one in over(files, 0, commands)), default=0)
    return f"{found[0]} / {found[1]} ({most})"


def measure_walks(source: Path) -> dict[str, str]:
    """Return the two walks, which run the package at `source` in processes of their own."""
    from benchmarks.walks import flower_walk, local_walk

    return {LOCAL_WALK: str(local_walk(source)), FLOWER_WALK: str(flower_walk(source))}


def todo(source: Path) -> str:
    """Return as Markdown what still misses an aim, by room."""
    files = read_source(source)
    _, missing = without_args(files)
    flower = [one for one in flower_imports(files) if FLOWER_FOLDER not in one[0]]
    general = [
        *(f"`{name}` is used by {', '.join(paths)}" for name, paths in repeated_names(files).items()),
        *(f"{one}: {one.parameters} parameters" for one in over(files, MAX_PARAMETERS)),
        *(f"{path}:{line} imports {module}" for path, line, module in flower),
        *(f"{one}: a name that says what" for found in bare_names(files).values() for one in found),
    ]
    lines = ["# What misses an aim", *(f"- {one}" for one in general)]
    loose = loose_types(files)
    for room in sorted({file.room for file in files}):
        own = [file for file in files if file.room == room]
        lines.append(f"\n## {room}: docstring/code {docstring_ratio(own):.2f}")
        if found := {path: count for path, count in loose.items() if room_of(path) == room}:
            shown = ", ".join(f"{path} {count}" for path, count in found.items())
            lines.append(f"- `dict[str, Any]`, `Mapping[str, Any]`: {sum(found.values())} ({shown})")
        lines += [f"- no `Args:`: {one}" for one in missing if room_of(one.path) == room]
        lines += [f"- {one}: {one.parameters} parameters" for one in over(own, MANY_PARAMETERS)]
        lines += [f"- no docstring: {one}" for file in own for one in file.undocumented]
        low = [file for file in own if file.code_lines > 30 and docstring_ratio([file]) < LOW_RATIO]
        if low:
            shown = ", ".join(f"{file.path} {docstring_ratio([file]):.2f}" for file in low)
            lines.append(f"- docstring/code below {LOW_RATIO}: {shown}")
    return "\n".join(lines) + "\n"


def table(columns: dict[str, dict[str, str]]) -> str:
    """Return a Markdown table with one column of marks per key, and the aims last."""
    names = list(dict.fromkeys(name for marks in columns.values() for name in marks))
    head = ["mark", *columns, "aim"]
    rows = [[name, *(marks.get(name, "") for marks in columns.values()), AIMS.get(name, "")] for name in names]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)) + "\n"


def write_table(path: Path, column: str, marks: dict[str, str]) -> None:
    """Replace one column, `before` or `after`, of the table between the two comments in a Markdown file."""
    text = path.read_text()
    start, end = text.index(_START) + len(_START), text.index(_END)
    rows = [line.strip("| ").split(" | ") for line in text[start:end].strip().splitlines()[2:]]
    columns = {
        name: {cells[0]: cells[number] for cells in rows if len(cells) > number and cells[number]}
        for number, name in enumerate(("before", "after"), start=1)
    }
    columns[column] = {**columns[column], **marks}
    path.write_text(f"{text[:start]}\n{table(columns)}{text[end:]}")


def main() -> int:
    """Print or write the marks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=SOURCE, help="the package's folder; default: this checkout's")
    parser.add_argument("--walks", action="store_true", help="measure the walks, too: one or two minutes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--todo", action="store_true", help="print what misses an aim instead, by room")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="write a column of the table in this file")
    parser.add_argument("--column", choices=("before", "after"), default="after", help="which one; default: after")
    chosen = parser.parse_args()
    if chosen.todo:
        print(todo(chosen.source), end="")
        return 0
    marks = {**(measure_walks(chosen.source) if chosen.walks else {}), **measure(chosen.source)}
    if chosen.write:
        write_table(chosen.write, chosen.column, marks)
    print(json.dumps(marks, indent=2) if chosen.json else table({"now": marks}), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
