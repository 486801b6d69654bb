"""The command line: arguments in, calls out."""

from rofl.cli.main import main

__all__ = ["main"]
