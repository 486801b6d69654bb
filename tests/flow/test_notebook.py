"""The notebook in examples/ runs from its first cell to its last, and what it prints is good.

Its cells are executed here, one after the other, and what a cell ends with is shown as a notebook would show it. A
kernel would bring twenty packages for the same.
"""

import ast
import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).parents[2] / "examples" / "suspects.ipynb"
NOTEBOOK = json.loads(PATH.read_text())


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Execute a cell; return the value of its last line where that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(PATH), "exec"), names)
    return eval(compile(ast.Expression(last.value), str(PATH), "eval"), names) if isinstance(last, ast.Expr) else None


def test_the_notebook_is_whole_and_holds_no_output() -> None:
    assert (NOTEBOOK["nbformat"], NOTEBOOK["metadata"]["kernelspec"]["name"]) == (4, "python3")
    assert {cell["cell_type"] for cell in NOTEBOOK["cells"]} == {"markdown", "code"}
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])
    for cell in NOTEBOOK["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            ast.parse("".join(cell["source"]))


@pytest.mark.slow
def test_the_notebook_runs_and_finds_the_wrong_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        shown = [run_cell("".join(cell["source"]), names) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert "<svg" in next(value for value in shown if hasattr(value, "_repr_html_"))._repr_html_()
    precision, recall = map(int, re.search(r"(\d+)% of them are really wrong, (\d+)% of", said.getvalue()).groups())
    assert precision > 80
    assert recall > 80
    assert float(re.search(r"([\d.]+)% of the new images", said.getvalue())[1]) > 85
    assert shown[-1].shape == (3, 10)
