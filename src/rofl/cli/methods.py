"""`rofl methods`: the methods by name."""

from rofl.cli.app import app, print_listing, summary_line
from rofl.cli.options import Json


@app.command("methods", epilog="Example: rofl methods --json")
def methods_command(as_json: Json = False) -> None:
    """List the methods by name."""
    from rofl.methods import METHODS

    print_listing({name: summary_line(METHODS.find(name)) for name in METHODS.names()}, "method", as_json)
