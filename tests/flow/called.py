"""The command line in this process, which saves the seconds that torch takes to import; others test it as a program."""

import contextlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from rofl.cli import main


@dataclass(frozen=True)
class Done:
    """What a program would leave behind."""

    returncode: int
    stdout: str
    stderr: str


def rofl(*arguments: str, cwd: Path) -> Done:
    """Run `rofl` with these arguments in a folder."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["rofl", *arguments]),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())
