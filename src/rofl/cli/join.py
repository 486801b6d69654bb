"""`rofl join`: take part in a run with this site's data."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from rofl.cli.app import app, print_message, stdout
from rofl.cli.options import Data, DataDir, Insecure, Json, Out, Test, check_flower
from rofl.errors import UserError

if TYPE_CHECKING:  # Flower is an extra, and slow to import
    from rofl.federation.site import OutgoingData
    from rofl.federation.site_memory import Agreement


@app.command("join", epilog="Example: rofl join --server localhost:9443 --data scans --credentials keys/sites/clinic-a")
def join_command(
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="the coordinator")] = "",
    data: Data = None,
    test: Test = None,
    credentials: Annotated[
        Path | None, typer.Option(metavar="DIR", help="this site's folder from the coordinator")
    ] = None,
    insecure: Insecure = False,
    client: Annotated[int, typer.Option(min=0, help="with --insecure: this site's number, counted from 0")] = 0,
    name: Annotated[str, typer.Option(help="with --insecure: this site's name")] = "",
    out: Out = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="this site's policy; default: next to the credentials")
    ] = None,
    init_policy: Annotated[
        bool, typer.Option("--init-policy", help="write a policy with the defaults and comments, and stop")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="take part without asking, if the policy allows it")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list what would leave this site, and stop")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Take part in a run with this site's data, which stays here; writes the site's own list of suspects and page.

    Without --data the site takes its part of the coordinator's data set: a rehearsal.
    """
    check_flower()
    from rofl.federation import site

    config = site.SiteConfig(credentials, client, name, data, test, out, data_dir, policy)
    if init_policy:
        _write_policy(site.policy_path(config))
        return
    if insecure == (credentials is not None):
        raise UserError(
            "A site needs its credentials, unless all run on one machine.", "--credentials DIR, or --insecure"
        )
    from rofl.cli.progress import decoding_bar
    from rofl.cli.tables import print_run
    from rofl.report import write_report

    with decoding_bar() as progress:
        if dry_run:
            _print_outgoing(site.preview(config, on_progress=progress))
            return
        ask = sys.stdin.isatty() and not yes
        finished = site.join(
            server, config, on_message=print_message, on_progress=progress, consent=partial(_consent, ask)
        )
    page = write_report([finished.folder], finished.folder / "report.html", data_dir)
    print_message(f"This site's suspects: {finished.folder / 'suspects'}")
    print_message(f"This site's page: {page}")
    if as_json:
        print_run(finished, as_json)


def _write_policy(path: Path | None) -> None:
    """Write a policy with the defaults."""
    from rofl.federation.site_policy import write_policy

    if path is None:
        raise UserError("The path of the policy is missing.", "--policy FILE, or --credentials DIR")
    write_policy(path)
    print_message(f"{path} has the defaults, with a comment on each; edit it, and rofl join will apply it.")


def _consent(ask: bool, agreement: "Agreement", masked: bool) -> bool:
    """Print what the coordinator proposes, and return whether to take part; without a terminal the policy decides."""
    print_message("The coordinator proposes, and this site's policy allows:")
    for line in agreement.lines(masked):
        print_message(f"  {line}")
    return not ask or typer.confirm("Take part?", err=True)


def _print_outgoing(outgoing: "OutgoingData") -> None:
    """Print the values, arrays and sums that leave a site, with their sizes, grouped by time, then by name."""
    from rofl.data.user.names import natural

    facts = [
        (name, json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value))
        for name, value in sorted(outgoing.info.fields().items())
    ]
    arrays = [
        (f"{group}/{name}", f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}", tensor.nbytes)
        for group, tensors in sorted(outgoing.tensors.items())
        for name, tensor in sorted(tensors.items(), key=lambda item: natural(item[0]))
    ]
    sums = [(f"sum of {name}", "number", 8) for name in sorted(outgoing.sums)]
    tests = ("right, tested: of held-out samples", "numbers", 16)
    classes = len(outgoing.info.classes)
    table = Table(title="What leaves this site", title_justify="left")
    for column in ("when", "what", "form", "bytes"):
        table.add_column(column, justify="right" if column == "bytes" else "left")
    _add_group(table, "once, on connecting", [(name, text, len(text.encode())) for name, text in facts])
    _add_group(table, "each round", [*arrays, *sums, tests])
    counts = ("given -> suggested labels, counted", f"({classes}, {classes})", 8 * classes**2)
    predicted = ("given -> predicted labels, counted", f"({classes}, {classes})", 8 * classes**2)
    doubt = ("samples, sum of doubt; sure, disagreements", "numbers", 32)
    _add_group(table, "after the last round", [predicted, doubt, counts, ("samples, flagged", "numbers", 16)])
    stdout.print(table)
    total = sum(size for _, _, size in arrays)
    print_message(
        f"{total} bytes of arrays a round. No sample, no label and no name of a sample leaves; nothing was sent now."
    )


def _add_group(table: Table, when: str, rows: list[tuple[str, str, int]]) -> None:
    """Add the rows of one time, and their total number of bytes.

    Args:
        table: The table.
        when: The time at which they leave.
        rows: Name, form and bytes of each.
    """
    table.add_section()
    for place, (what, form, size) in enumerate(rows):
        table.add_row("" if place else when, Text(what), Text(form), str(size))
    table.add_row("", Text("in all", style="bold"), "", str(sum(size for _, _, size in rows)))
