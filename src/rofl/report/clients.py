"""How many labels of each client are suspects."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from rofl.data.own.names import natural
from rofl.report import words
from rofl.report.runs import is_flagged

_LONG = 30  # clients; a longer table scrolls in a box of its own


def client_table(suspects: Sequence[Mapping[str, Any]]) -> str:
    """A row per client: samples, flagged, and the share with a bar."""
    samples = Counter(suspect["client"] for suspect in suspects)
    flagged = Counter(suspect["client"] for suspect in suspects if is_flagged(suspect))
    rows = "".join(_row(client, samples[client], flagged[client]) for client in _in_order(samples))
    box = '<div class="scroll tall" tabindex="0">' if len(samples) > _LONG else '<div class="scroll">'
    return (
        f"{box}<table><thead><tr><th scope=col>Client</th><th scope=col>Samples</th><th scope=col>Flagged</th>"
        f"<th scope=col>Share</th><td></td></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _in_order(clients: Iterable[int | str]) -> list[int | str]:
    """Numbers as numbers, and site 2 before site 10."""
    return sorted(clients, key=lambda client: natural(str(client)))


def _row(client: int | str, samples: int, flagged: int) -> str:
    share = flagged / samples
    return (
        f"<tr><th scope=row>{escape(str(client))}</th><td>{words.count(samples)}</td><td>{words.count(flagged)}</td>"
        f'<td>{words.share(share)}</td><td class="bar"><span style="width:{100 * share:.1f}%"></span></td></tr>'
    )
