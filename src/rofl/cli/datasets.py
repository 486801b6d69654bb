"""`rofl datasets`: the data sets by name."""

from rofl.cli.app import app, print_listing, summary_line
from rofl.cli.options import Json


@app.command("datasets", epilog="Example: rofl datasets --json")
def datasets_command(as_json: Json = False) -> None:
    """List the data sets by name."""
    from rofl.data import DATASETS

    print_listing({name: summary_line(DATASETS.find(name)) for name in DATASETS.names()}, "data set", as_json)
