"""Near-duplicates and outliers, which are issues of samples, not of labels."""

from collections.abc import Sequence
from dataclasses import dataclass

from rofl.audit.sample_issues import SampleIssue
from rofl.data.federated import FederatedDataset
from rofl.data.originals import Originals
from rofl.report.environment import Section, render
from rofl.report.thumbnails import thumbnails

MAX_SHOWN = 60  # cards of each kind
_COARSE = 48  # pictures of up to this many pixels are enlarged without smoothing


@dataclass(frozen=True)
class Shown:
    """One sample on a card: its picture, or the cells of its row."""

    name: str
    given: str
    picture: str  # a data URL; "" if there is none
    coarse: bool  # whether it is enlarged without smoothing
    cells: dict[str, str]


@dataclass(frozen=True)
class IssueCard:
    """One or two samples with the same issue."""

    client: str
    samples: list[Shown]
    labels_differ: bool
    score: float


def other_issues(
    issues: Sequence[SampleIssue], federated: FederatedDataset | None, originals: Originals | None = None
) -> Section:
    """Return the cards of near-duplicates and of outliers, the first 60 of each; empty if there are none.

    Args:
        issues: the issues that the reader may see, most important first.
        federated: has the images; None if they cannot be loaded, so that cards are text only.
        originals: has the cells of a table.
    """
    if not issues:
        return Section()
    kinds = {
        "near-duplicates": [issue for issue in issues if issue.kind == "near duplicate"],
        "outliers": [issue for issue in issues if issue.kind == "outlier"],
    }
    shown = [issue for group in kinds.values() for issue in group[:MAX_SHOWN]]
    pictures, coarse = _pictures(shown, federated)
    groups = {
        kind: [_card(issue, pictures, coarse, originals) for issue in group[:MAX_SHOWN]]
        for kind, group in kinds.items()
    }
    html = render(
        "other_issues.html.j2",
        groups=groups,
        counts={kind: len(group) for kind, group in kinds.items()},
        differing=sum(issue.labels_differ for issue in issues),
    )
    return Section(html, styles=("gallery.css",))


def _pictures(issues: Sequence[SampleIssue], federated: FederatedDataset | None) -> tuple[dict[int, str], bool]:
    """Return the pictures of all samples on the cards as data URLs, by row, and whether they have few pixels."""
    if federated is None or federated.images.is_table:
        return {}, False
    rows = list(dict.fromkeys(row for issue in issues for row in (issue.row, issue.other_row) if row >= 0))
    encoded = thumbnails(federated.images.train, rows)
    urls = (f"data:{encoded.media_type};base64,{picture}" for picture in encoded.pictures)
    return dict(zip(rows, urls, strict=True)), encoded.edge <= _COARSE


def _card(issue: SampleIssue, pictures: dict[int, str], coarse: bool, originals: Originals | None) -> IssueCard:
    both = [(issue.row, issue.sample, issue.given)]
    if issue.kind == "near duplicate":
        both.append((issue.other_row, issue.other, issue.other_given))
    samples = [
        Shown(name, given, pictures.get(row, ""), coarse, {} if originals is None else originals.cells(row))
        for row, name, given in both
    ]
    return IssueCard(issue.client, samples, issue.labels_differ, issue.score)
