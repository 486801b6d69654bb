"""`rofl data check`: checks the user's data before a run."""

from pathlib import Path
from typing import Annotated

import typer

from rofl.cli.app import data_app, print_json, stdout
from rofl.cli.options import Json, Test
from rofl.errors import UserError


@data_app.command("check", epilog="Example: rofl data check photos")
def data_check_command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="a folder, or a .csv, .parquet or .npz file")],
    test: Test = None,
    as_json: Json = False,
) -> None:
    """Check your data before a run: clients, classes, sizes, duplicates, unreadable files."""
    from rofl.cli.data_tables import check_facts, check_table
    from rofl.cli.progress import decoding_bar
    from rofl.data.user import UserSource, check_user_data

    try:
        with decoding_bar() as progress:
            check = check_user_data(UserSource(str(path), str(test or "")), progress)
    except UserError as error:
        if as_json:
            print_json({"usable": False, "problem": error.sentence, "try": error.hint})
        raise
    if as_json:
        print_json(check_facts(check))
    else:
        stdout.print(check_table(check, path.name))
