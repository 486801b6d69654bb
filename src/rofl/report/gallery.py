"""The suspects as cards that a reader goes through: what the page's script needs to know of them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rofl.audit.suspect_list import SuspectRow
from rofl.data.federated import FederatedDataset
from rofl.data.user.names import natural
from rofl.report.document import Section, fill, read
from rofl.report.formatting import count
from rofl.report.thumbnails import thumbnails

LIMIT = 10_000  # suspects on a page
_SCRIPTS = ("decisions.js", "cards.js", "gallery.js")


@dataclass(frozen=True)
class GalleryData:
    """Suspects to go through."""

    suspects: Sequence[SuspectRow]  # flagged, most suspicious first
    classes: Sequence[str]  # that a label may be
    name: str  # safe in a file's name
    key: str  # under which the browser keeps decisions
    federated: FederatedDataset | None  # has the images; None where they cannot be had, which leaves the text
    trouble: str = ""  # why they cannot be had
    truth_known: bool = False  # whether the scene knows which labels are wrong

    @property
    def shown(self) -> Sequence[SuspectRow]:
        """Those that the page holds."""
        return self.suspects[:LIMIT]

    @property
    def has_pictures(self) -> bool:
        """Whether there is anything to see."""
        return bool(self.suspects) and self.federated is not None and not self.federated.images.is_table


def gallery(pile: GalleryData) -> Section:
    """The section, its data and its script."""
    lead = " ".join(_sentences(pile))
    if not pile.suspects:
        return Section(fill("no_gallery.html", lead=lead))
    data = json.dumps(_data(pile), separators=(",", ":")).replace("<", "\\u003c")  # cannot end the script element
    return Section(fill("gallery.html", lead=lead, data=data), "\n".join(map(read, _SCRIPTS)))


def _sentences(pile: GalleryData) -> Iterable[str]:
    """What stands above the cards."""
    if not pile.suspects:
        yield "No label was flagged."
        return
    flagged, shown = count(len(pile.suspects)), count(len(pile.shown))
    which = f"{flagged} labels were" if len(pile.suspects) > 1 else "1 label was"
    yield f"{which} flagged, most suspicious first: the given label, then the model's suggestion."
    if len(pile.shown) < len(pile.suspects):
        yield f"This page holds the first {shown} of them; the lists in the run folder hold all."
    yield "A score of 1 means surely wrong."
    yield "Mark what you find, and save it as a file for <code>rofl audit --decisions</code>."
    if pile.trouble:
        yield f"The pictures are missing: {escape(pile.trouble)}"
    elif pile.truth_known:
        yield "In this experiment the truth is known, so each carries a mark: ✓ if the label is really wrong."


def _data(pile: GalleryData) -> dict[str, Any]:
    """Columns of equal length, with clients and classes by number."""
    lines, federated = pile.shown, pile.federated
    given, suggested = [row.given for row in lines], [row.suggested for row in lines]
    clients = [row.client for row in lines]
    owners = _numbered(sorted(set(clients), key=natural))
    classes = _numbered([*pile.classes, *given, *suggested])
    rows = [row.row for row in lines]
    data: dict[str, Any] = {
        "key": pile.key,
        "file": f"decisions-{pile.name}.csv",
        "clients": list(owners),
        "classes": list(classes),
        "client": [owners[name] for name in clients],
        "sample": [row.sample for row in lines],
        "given": [classes[name] for name in given],
        "suggested": [classes[name] for name in suggested],
        "score": [round(row.score, 4) for row in lines],
    }
    if federated is not None and pile.truth_known:
        data["wrong"] = federated.wrong[rows].int().tolist()
    if federated is not None and pile.has_pictures:
        made = thumbnails(federated.images.train, rows)
        data |= {"kind": made.kind, "edge": made.edge, "picture": made.pictures}
    return data


def _numbered(names: Iterable[str]) -> dict[str, int]:
    """Each name once, with its place."""
    return {name: place for place, name in enumerate(dict.fromkeys(names))}
