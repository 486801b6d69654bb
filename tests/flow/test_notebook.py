"""The notebook in examples/ runs from its first cell to its last, and what it prints is good.

Its cells are executed in this process, one after the other, and once in a real kernel, which brings twenty packages
into an environment of its own.
"""

import ast
import contextlib
import io
import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

import rofl

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


# Executes the notebook as `jupyter nbconvert --execute` does, and records every display message of the kernel.
KERNEL = """
import json, sys
import nbclient, nbformat

class Client(nbclient.NotebookClient):
    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] in ("display_data", "update_display_data"):
            shown.append(msg["content"]["data"].get("text/html", ""))
        return super().process_message(msg, cell, cell_index)

shown = []
notebook = nbformat.read(sys.argv[1], 4)
Client(notebook, timeout=900, kernel_name="python3").execute()
outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
results = [output["data"] for output in outputs if output["output_type"] == "execute_result"]
json.dump({"shown": shown, "results": results}, open("outputs.json", "w"))
"""


@pytest.mark.slow
def test_a_real_kernel_shows_the_progress_and_the_run_with_its_curve(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    python = tmp_path / "env" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "ipykernel", "nbclient"]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"A kernel cannot be installed here: {done.stderr[-300:]}")
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (packages / "rofl.pth").write_text(f"{sysconfig.get_path('purelib')}\n{Path(rofl.__file__).parents[1]}\n")
    done = subprocess.run([python, "-c", KERNEL, str(PATH)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outputs = json.loads((tmp_path / "outputs.json").read_text())
    rounds = [re.search(r"round (\d+) of 15, accuracy", html) for html in outputs["shown"]]
    assert [int(found[1]) for found in rounds if found] == list(range(1, 16))
    (run,) = (result["text/html"] for result in outputs["results"] if "text/html" in result)
    assert "labels that look wrong" in run
    assert "<svg" in run
