"""`rofl federation log`: prints the requests and messages in the log of a site or a coordinator."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rofl.cli.app import federation_app, print_json, print_message, stdout
from rofl.cli.options import Json, check_flower


@federation_app.command("log", epilog="Example: rofl federation log runs/join-north")
def federation_log_command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="a run folder of rofl join or rofl serve, or the file")],
    as_json: Json = False,
) -> None:
    """Print the log of a federation: every request, every message sent, every refusal; a modified log is an error."""
    check_flower()
    from rofl.federation.event_log import read_log

    entries = read_log(path)
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    for entry in entries:
        facts = "  ".join(f"{name}={value}" for name, value in entry.facts.items())
        line = f"{entry.time}  {entry.event:<12}  {facts}"
        line = "".join(
            each if each.isprintable() else repr(each)[1:-1] for each in line
        )  # some of it is from elsewhere
        stdout.print(line, markup=False, highlight=False, soft_wrap=True)
    last = entries[-1].hash[:16] if entries else "-"
    print_message(f"{len(entries)} entries; the chain is intact, and ends with {last}.")
