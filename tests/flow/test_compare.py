"""docs/compare.md names only commands, options, tests and names of Python that exist."""

import re
import shlex
from pathlib import Path

import click
from typer.main import get_command

import rofl
from rofl.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compare.md").read_text()
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))
COMMANDS = sorted(set(re.findall(r"`(rofl [^`]+)`", PAGE)))


def test_the_page_speaks_of_all_seven() -> None:
    for tool in ("Flower", "NVFLARE", "cleanlab", "FiftyOne", "Lightning", "ultralytics", "scikit-learn"):
        assert f"\n## From {tool}\n" in PAGE, tool
    assert (len(TESTS) > 30, len(COMMANDS) > 15) == (True, True)


def test_tests_that_are_named_exist() -> None:
    missing = [(path, name) for path, name in TESTS if name and f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []
    assert all((ROOT / path).is_file() for path, _ in TESTS)


def test_commands_that_are_named_exist() -> None:
    for line in COMMANDS:
        words = shlex.split(line)[1:]
        command: click.Command = get_command(app)
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_names_of_python_exist() -> None:
    names = set(re.findall(r"`rofl\.(\w+)", PAGE))
    assert names >= {"load", "FederatedClassifier"}
    assert names <= set(rofl.__all__)
