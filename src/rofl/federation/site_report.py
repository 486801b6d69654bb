"""The sites' audits of their own labels after the last round, as counts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from flwr.app import RecordDict

from rofl.audit import transition
from rofl.audit.result import NoiseEstimate
from rofl.federation.protocol import get_sums, put_sums
from rofl.federation.site_info import SiteInfo
from rofl.federation.tensor_records import decode_count, decode_table, put_tensors
from rofl.training.held_out import HeldOut


@dataclass(frozen=True)
class SiteReport:
    """The farewell: what a site found in its own labels after the last round, as counts.

    Attributes:
        samples: How many samples it has.
        flagged: How many of their labels are suspected to be wrong.
        transition: Counts by (suggested class, given class), (K, K) int64; they add up to `samples`.
    """

    samples: int
    flagged: int
    transition: torch.Tensor

    def encode(self) -> RecordDict:
        """Return the counts as a message."""
        content = put_sums(RecordDict(), {"samples": self.samples, "flagged": self.flagged})
        return put_tensors(content, tables={"transition": self.transition})

    @classmethod
    def decode(cls, content: RecordDict, classes: int, declared: int | None = None) -> "SiteReport":
        """Return the counts of a message, of one site or of several.

        Args:
            content: The message.
            classes: How many classes the model has.
            declared: How many samples there are at most; any number where None.

        Raises:
            ValueError: If they cannot be true.
        """
        sums = get_sums(content)
        samples, flagged = decode_count(sums, "samples"), decode_count(sums, "flagged")
        if flagged > samples:
            raise ValueError(f"it suspects {flagged} of {samples} labels")
        if declared is not None and samples > declared:
            raise ValueError(f"it counts {samples} samples, and {declared} were declared")
        return cls(samples, flagged, decode_table(content, "transition", classes, samples))


@dataclass(frozen=True)
class SiteReports:
    """The results of the sites' audits.

    Attributes:
        counts: A report of each site, or one over all of them where sums were masked; none where none could be had.
        finished: The sites that have reported.
        by_client: The reports of single sites; empty where sums were masked.
    """

    counts: list[SiteReport]
    finished: frozenset[int]
    by_client: Mapping[int, SiteReport] = field(default_factory=dict)


def count_suggestions(reports: Iterable[SiteReport]) -> HeldOut:
    """Return how often each class is suggested and given, over all sites, and how often both are the same."""
    table = torch.stack([report.transition for report in reports]).sum(dim=0)  # (K, K): suggested, given
    suggested, given = table.sum(dim=1).tolist(), table.sum(dim=0).tolist()
    return HeldOut(predicted=suggested, labelled=given, agreed=int(table.diagonal().sum()))


def estimate_noise(sites: Mapping[int, SiteInfo], reports: SiteReports) -> NoiseEstimate:
    """Return the label noise as the sites' audits see it, from their counts.

    Args:
        sites: All sites, by their numbers.
        reports: What they found.

    Returns:
        The share of suspected labels, of all sites and of each that is known; and Q[i][j], the estimated
        probability that a sample of class i is labelled j.
    """
    flagged = sum(report.flagged for report in reports.counts)
    samples = sum(report.samples for report in reports.counts)
    known = reports.by_client.items()
    clients = {sites[client].name: round(each.flagged / max(each.samples, 1), 6) for client, each in known}
    tables = [report.transition for report in reports.counts]
    matrix = transition(torch.stack(tables).sum(dim=0)).tolist() if tables else []
    return NoiseEstimate(
        ratio=flagged / samples if samples else 0.0,
        clients=clients,
        transition=[[round(share, 6) for share in row] for row in matrix],
    )
