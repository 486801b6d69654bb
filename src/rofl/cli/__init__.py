"""The command line: arguments in, calls out."""

from rofl.cli.commands import main

__all__ = ["main"]
