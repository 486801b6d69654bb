"""What the documents show is true: every Python snippet and every `rofl` command of the README runs."""

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from rofl.cli.main import app
from rofl.models import build
from tests.data.user import places
from tests.models.networks import bert_folder, needs_timm, needs_transformers, save_backbone

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
# the snippets' own settings take minutes; the first rounds show that they run
FEW = ("rounds=1", "clients=4", "cohort=2", "data.train=120", "data.test=60", "model.name=mlp", "method.epochs=1")
QUICK = [*(word for change in FEW for word in ("--set", change)), "--workers", "0"]


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(text: str = README) -> list[str]:
    lines = [line for block in blocks("bash", text) for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.startswith("rofl ")]


def test_the_readme_shows_python_and_commands() -> None:
    assert len(blocks("python")) >= 1
    assert len(commands()) >= 4


@pytest.mark.parametrize("snippet", blocks("python"))
def test_python_snippets_run(snippet, tmp_path, monkeypatch) -> None:
    """Here, which saves the seconds that torch takes to import; tests/test_api.py has one as a script, with workers."""
    monkeypatch.chdir(tmp_path)
    quick = snippet.replace('rofl.preset("digits"', 'rofl.preset("digits", rounds=2, cohort=2, data__train=200')
    quick = quick.replace("out=", "workers=0, out=")
    assert quick.count("rounds=2") == quick.count("workers=0") == 1
    exec(compile(quick, "README.md", "exec"), {})


def row_names(printed: str) -> list[str]:
    """The first column of a printed summary."""
    return [found for found in re.findall(r"^│ (.*?) *│", printed, flags=re.MULTILINE) if found]


def test_commands_run_one_after_the_other(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (shown,) = (block for block in blocks("text") if block.startswith("digits, rofl"))
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    places.write_folder(tmp_path / "photos")
    for command in commands():
        words = shlex.split(command)[1:]
        aux = QUICK if words[0] in ("run", "compare") and "digits" in words else []
        aux = ["--set", "rounds=1", "--workers", "0"] if "--data" in words else aux
        aux = ["--workers", "0"] if words[0] == "audit" else aux
        aux += ["--plan"] if words[0] == "reproduce" else []  # tests/flow/test_reproduce_command.py runs it
        if words[0] == "demo" or "mnist-lite" in words:
            words = [words[0], "--help"]  # the demo has its own test, mnist-lite needs data and minutes
        done = CliRunner().invoke(app, [*words, *aux])
        assert done.exit_code == 0, f"{command}: {done.output} {done.exception}"
        if command == "rofl run digits":
            names = row_names(shown)
            assert row_names(done.stdout)[: len(names)] == names  # after one round warnings follow
            assert "runs/digits-rofl-1/report.html" in shown
            assert (tmp_path / "runs" / "digits-rofl-1" / "report.html").is_file()


def test_a_million_clients_run_as_the_page_on_speed_says(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (command,) = commands((ROOT / "docs" / "speed.md").read_text())
    fewer = [word for change in ("rounds=1", "model.name=mlp", "method.epochs=1") for word in ("--set", change)]
    done = CliRunner().invoke(app, [*shlex.split(command)[1:], *fewer, "--workers", "0"])
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "suspects" / "all.csv").is_file()


def test_commands_and_snippet_of_the_page_on_audits_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    places.write_folder(tmp_path / "photos", classes=("0", "1", "2"))
    text = (ROOT / "docs" / "audit.md").read_text()
    assert len(commands(text)) == 5
    for command in commands(text):
        words = shlex.split(command)[1:]
        done = CliRunner().invoke(app, [*words, *(QUICK if words[0] == "run" else ["--workers", "0"])])
        assert done.exit_code == 0, f"{command}: {done.output} {done.exception}"
    (snippet,) = blocks("python", text)
    exec(compile(snippet, "audit.md", "exec"), {})


def test_the_snippet_of_the_page_on_the_estimator_runs(capsys) -> None:
    (snippet,) = blocks("python", (ROOT / "docs" / "estimator.md").read_text())
    exec(compile(snippet, "estimator.md", "exec"), {})
    accuracy, issues, *_ = capsys.readouterr().out.splitlines()
    assert float(accuracy) > 0.9
    assert 40 <= int(issues.split()[0]) <= 70  # 50 are wrong


@pytest.mark.slow
def test_the_page_on_using_a_model_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    places.write_folder(tmp_path / "photos")
    text = (ROOT / "docs" / "use-model.md").read_text()
    shown = re.findall(r"```(bash|python)\n(.*?)```", text, flags=re.DOTALL)
    assert {language for language, _ in shown} == {"bash", "python"}
    for language, block in shown:
        if language == "python":
            exec(compile(block, "use-model.md", "exec"), {})
            continue
        for command in commands(f"```bash\n{block}```"):
            words = shlex.split(command)[1:]
            few = ["--set", "rounds=1", "--workers", "0"] if words[0] == "run" else []
            done = CliRunner().invoke(app, [*words, *few])
            assert done.exit_code == 0, f"{command}: {done.output} {done.exception}"


def test_commands_of_the_page_on_labelling_tools_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = commands((ROOT / "docs" / "label-tools.md").read_text())
    assert len(found) == 4
    runner = CliRunner()
    assert runner.invoke(app, ["run", "digits", "--out", "runs/digits-rofl-1", *QUICK]).exit_code == 0
    for command in found:
        done = runner.invoke(app, [*shlex.split(command)[1:], "--workers", "0"])
        assert done.exit_code == 0, f"{command}: {done.output} {done.exception}"


@pytest.mark.parametrize("page", ["reproduce.md", "benchmark.md"])
@pytest.mark.slow
def test_commands_of_pages_on_tables_are_understood(tmp_path, monkeypatch, page) -> None:
    monkeypatch.chdir(tmp_path)
    found = commands((ROOT / "docs" / page).read_text())
    assert len(found) >= 4
    for command in found:
        done = CliRunner().invoke(app, [*shlex.split(command)[1:], "--plan"])
        assert done.exit_code == 0, f"{command}: {done.output} {done.exception}"


def test_the_command_of_the_page_on_privacy_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (command,) = commands((ROOT / "docs" / "privacy.md").read_text())
    done = CliRunner().invoke(app, [*shlex.split(command)[1:], *QUICK])
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    assert "epsilon" in done.stdout


def test_the_command_of_the_page_on_watching_is_understood(tmp_path, monkeypatch) -> None:
    """It serves until Ctrl-C; tests/report/test_live_page.py has it in a browser."""
    monkeypatch.chdir(tmp_path)
    (command,) = commands((ROOT / "docs" / "watch.md").read_text())
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert getattr(done.exception, "sentence", "") == "There is no folder runs/digits-rofl-1."


def test_every_document_with_commands_or_snippets_is_run_by_a_test() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    shown = [path.name for path in DOCUMENTS if blocks("(?:bash|python)", path.read_text())]
    assert len(shown) > 15
    assert [name for name in shown if name not in sources] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_names_of_files_are_real(document) -> None:
    text = document.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (document.parent / target).exists(), target
    for name in re.findall(r"`((?:tests|benchmarks|docs)/[\w/.-]+)`", text):
        assert (ROOT / name).exists(), name


def test_every_function_the_method_page_names_exists() -> None:
    import importlib

    text = (ROOT / "docs" / "method.md").read_text()
    names = re.findall(r"`((?:core|methods|audit)\.[a-z_.]+)`", text)
    assert len(names) > 12
    for name in names:
        module, _, function = f"rofl.{name}".rpartition(".")
        assert hasattr(importlib.import_module(module), function), name


def test_the_settings_page_lists_every_setting() -> None:
    from rofl.config.schema import all_keys
    from rofl.methods import METHODS

    text = (ROOT / "docs" / "settings.md").read_text()
    keys = {key for name in METHODS for key in all_keys({"method": {"name": name}})}
    assert [key for key in sorted(keys) if f"`{key}`" not in text] == []


def test_the_snippet_of_the_page_on_networks_runs(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (snippet,) = blocks("python", (ROOT / "docs" / "networks.md").read_text())
    module = ModuleType("networks_snippet")  # a factory is imported by its name
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(snippet, "networks.md", "exec"), vars(module))
    assert "Linear(in_features=32" in capsys.readouterr().out


@pytest.mark.slow
@needs_timm
@needs_transformers
def test_commands_of_the_page_on_networks_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROFL_CACHE", str(tmp_path / "cache"))
    places.write_folder(tmp_path / "photos")
    save_backbone(tmp_path / "resnet18.safetensors", build("timm:resnet18", (3, 8, 8), 2, 1.0, 0))
    bert_folder(tmp_path / "models" / "my-bert", ["good", "bad"])
    rows = "".join(f"{word} {place},{word}\n" for place in range(20) for word in ("good", "bad"))
    (tmp_path / "reviews.csv").write_text(f"text,label\n{rows}")
    found = commands((ROOT / "docs" / "networks.md").read_text())
    assert len(found) == 2
    for command in found:
        done = CliRunner().invoke(app, [*shlex.split(command)[1:], "--set", "rounds=1", "--workers", "0"])
        assert done.exit_code == 0, f"{command}: {done.output} {done.exception}"
