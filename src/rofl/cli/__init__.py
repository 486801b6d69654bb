"""The command line: arguments in, calls out.

May import: everything.
"""

from rofl.cli.main import main

__all__ = ["main"]
