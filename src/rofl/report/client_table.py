"""How wrong the labels of each client look."""

from collections.abc import Sequence
from html import escape

from rofl.report import formatting
from rofl.report.audience import Client

_LONG = 30  # clients; a longer table scrolls in a box of its own


def client_table(clients: Sequence[Client]) -> str:
    """A row per client: samples, estimated noise, and suspects with a bar for their share."""
    rows = "".join(map(_row, clients))
    box = '<div class="scroll tall" tabindex="0">' if len(clients) > _LONG else '<div class="scroll">'
    return (
        f"{box}<table><thead><tr><th scope=col>Client</th><th scope=col>Samples</th><th scope=col>Estimated noise</th>"
        f"<th scope=col>Suspects</th><td></td></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(client: Client) -> str:
    share = client.flagged / client.samples
    return (
        f"<tr><th scope=row>{escape(client.name)}</th><td>{formatting.count(client.samples)}</td>"
        f"<td>{formatting.share(client.noise)}</td><td>{formatting.count(client.flagged)}</td>"
        f'<td class="bar"><span style="width:{100 * share:.1f}%"></span></td></tr>'
    )
