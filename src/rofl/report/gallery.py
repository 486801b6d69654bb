"""The most suspicious samples as pictures."""

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from torch import Tensor

from rofl.report.runs import is_flagged
from rofl.scene import Scene

LIMIT = 60  # samples on a page
_EDGE = 96  # pixels; larger images are scaled down to it


def most_suspicious(suspects: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The flagged samples that stand first in the list."""
    return [suspect for suspect in suspects if is_flagged(suspect)][:LIMIT]


def gallery(suspects: Sequence[Mapping[str, Any]], scene: Scene | None, truth_known: bool) -> str:
    """A figure per sample.

    Args:
        suspects: lines of the suspects files, most suspicious first.
        scene: has the images; None where they cannot be had, which leaves the text.
        truth_known: whether the scene knows which labels are wrong.
    """
    wrong = scene.wrong if scene is not None and truth_known else None
    return "".join(_figure(suspect, scene, wrong) for suspect in suspects)


def data_uri(pixels: Tensor) -> str:
    """An image (C, H, W) uint8 as a PNG inside a URI."""
    from PIL import Image  # only the page needs it

    array = pixels.permute(1, 2, 0).contiguous().numpy()  # (H, W, C)
    image = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    image.thumbnail((_EDGE, _EDGE))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _figure(suspect: Mapping[str, Any], scene: Scene | None, wrong: Tensor | None) -> str:
    row, client, sample = int(suspect["row"]), escape(str(suspect["client"])), escape(str(suspect["sample"]))
    given, suggested = escape(suspect["given"]), escape(suspect["suggested"])
    picture = ""
    if scene is not None and not scene.images.is_table:
        about = f"sample {sample}, labelled {given}"
        picture = f'<img src="{data_uri(scene.images.train[row])}" alt="{about}" loading="lazy">'
    mark = "" if wrong is None else _mark(bool(wrong[row]))
    return (
        f"<figure>{picture}<figcaption>"
        f'<span class="labels"><s>{given}</s> <span aria-label="rather">→</span> <b>{suggested}</b></span>'
        f"{mark}"
        f'<span class="note">client {client}<br>sample {sample}<br>score {float(suspect["score"]):.2f}</span>'
        "</figcaption></figure>"
    )


def _mark(wrong: bool) -> str:
    """Whether the suspicion was right, in a sign and in words."""
    return '<span class="mark yes">✓ wrong</span>' if wrong else '<span class="mark no">✗ label is right</span>'
