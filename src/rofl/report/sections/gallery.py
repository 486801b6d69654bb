"""The suspects as cards that a reader reviews one by one.

Python writes the suspects into the page as JSON. The scripts in `static` build the cards, a hundred at a time, and
store the decisions: decisions.js holds them and reads and writes CSV, cards.js builds a card, gallery.js handles
filters, keys and buttons, and viewer.js shows one picture large. `rofl audit --decisions` reads the CSV.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NotRequired, TypedDict

from markupsafe import Markup

from rofl.audit.suspect_list import SuspectRow
from rofl.data.federated import FederatedDataset
from rofl.data.originals import Originals
from rofl.data.user.names import natural
from rofl.report.environment import Section, read_static, render
from rofl.report.large_pictures import ImageMode, LargePictures, large_pictures
from rofl.report.thumbnails import thumbnails

MAX_SHOWN = 10_000  # maximum number of suspects on a page
_SCRIPTS = ("decisions.js", "cards.js", "viewer.js", "gallery.js")  # in the order of their dependencies


_NO_LARGE = LargePictures()


@dataclass(frozen=True)
class GalleryData:
    """The suspects of a gallery, with their images and metadata."""

    suspects: Sequence[SuspectRow]  # flagged, most suspicious first
    classes: Sequence[str]  # the choices for the right label
    name: str  # safe as a part of a file name
    storage_key: str  # key of the decisions in the browser's storage
    federated: FederatedDataset | None  # has the images; None if they cannot be loaded, so that cards are text only
    missing_images: str = ""  # the reason why they cannot be loaded
    truth_known: bool = False  # whether `federated` knows which labels are wrong
    originals: Originals | None = None  # the images in full size, and the cells of a table
    large: LargePictures = _NO_LARGE
    unflagged_note: str = ""  # a sentence about wrong labels that are not flagged

    @property
    def shown(self) -> Sequence[SuspectRow]:
        """The suspects that the page holds."""
        return self.suspects[:MAX_SHOWN]

    @property
    def has_pictures(self) -> bool:
        """Whether cards show images; samples of a table have none."""
        return bool(self.suspects) and self.federated is not None and not self.federated.images.is_table


class SuspectColumns(TypedDict):
    """The data for gallery.js: columns with one value per suspect; clients and classes are given by index."""

    key: str  # key of the browser's storage
    file: str  # name of the file of decisions
    clients: list[str]  # their names
    classes: list[str]  # their names
    client: list[int]
    row: list[int]  # rows of the training set, which the t-SNE picture uses to identify samples
    sample: list[str]
    given: list[int]
    suggested: list[int]
    score: list[float]
    wrong: NotRequired[list[int]]  # 1 if the label is really wrong
    kind: NotRequired[str]  # the media type of the pictures
    edge: NotRequired[int]  # pixels of their longer side
    picture: NotRequired[list[str]]  # base64
    link: NotRequired[list[str]]  # URLs of the images in full size
    columns: NotRequired[list[str]]  # names of a table's columns
    cells: NotRequired[list[list[str]]]  # one list of cells per suspect


def with_large_pictures(data: GalleryData, mode: ImageMode, folder: Path) -> GalleryData:
    """Return the data with large pictures of the suspects, if these have pictures.

    Args:
        data: the suspects.
        mode: no large pictures, links to the files, or copies.
        folder: the folder of the page; links are relative to it.
    """
    if not data.has_pictures or data.originals is None:
        return data
    rows = [suspect.row for suspect in data.shown]
    return replace(data, large=large_pictures(mode, data.originals, rows, folder))


def gallery(data: GalleryData) -> Section:
    """Return the cards, their data, scripts and style sheet.

    Returns:
        The section; if no label is flagged, a sentence instead of cards.
    """
    if not data.suspects:
        sentence = f"No label was flagged. {data.unflagged_note}".strip()
        return Section(render("notice.html.j2", heading="Suspects", sentence=sentence))
    html = render(
        "gallery.html.j2",
        flagged=len(data.suspects),
        shown=len(data.shown),
        missing_images=data.missing_images,
        truth_known=data.truth_known,
        columns=_columns(data),
        copies=data.large.copies,
        unflagged_note=data.unflagged_note,
        has_pictures=data.has_pictures,
    )
    scripts = Markup("\n").join(map(read_static, _SCRIPTS))
    return Section(html, scripts, styles=("gallery.css",), links_images=data.large.links is not None)


def hidden_gallery() -> Section:
    """Return the notice that replaces the gallery on the server's page."""
    sentence = "Only a site's own page shows its suspects."
    return Section(render("notice.html.j2", heading="Suspects", sentence=sentence))


def _columns(data: GalleryData) -> SuspectColumns:
    """Return the suspects for gallery.js.

    The classes are those of the run, then any that only a list of suspects names. Clients are in natural order.
    Thumbnails take most of the time and nearly all of the space.
    """
    suspects, federated = data.shown, data.federated
    clients = _indices(sorted({suspect.client for suspect in suspects}, key=natural))
    classes = _indices([*data.classes, *(s.given for s in suspects), *(s.suggested for s in suspects)])
    columns: SuspectColumns = {
        "key": data.storage_key,
        "file": f"decisions-{data.name}.csv",
        "clients": list(clients),
        "classes": list(classes),
        "client": [clients[suspect.client] for suspect in suspects],
        "row": [suspect.row for suspect in suspects],
        "sample": [suspect.sample for suspect in suspects],
        "given": [classes[suspect.given] for suspect in suspects],
        "suggested": [classes[suspect.suggested] for suspect in suspects],
        "score": [round(suspect.score, 4) for suspect in suspects],
    }
    rows = [suspect.row for suspect in suspects]
    if federated is not None and data.truth_known:
        columns["wrong"] = federated.wrong[rows].int().tolist()
    if federated is not None and data.has_pictures:
        encoded = thumbnails(federated.images.train, rows)
        columns |= {"kind": encoded.media_type, "edge": encoded.edge, "picture": encoded.pictures}
    if data.large.links is not None:
        columns["link"] = data.large.links
    if data.originals is not None and data.originals.columns:
        cells = [data.originals.cells(row) for row in rows]
        columns |= {"columns": list(data.originals.columns), "cells": [list(each.values()) for each in cells]}
    return columns


def _indices(names: Iterable[str]) -> dict[str, int]:
    """Return each distinct name with its index, in the order of first occurrence."""
    return {name: index for index, name in enumerate(dict.fromkeys(names))}
