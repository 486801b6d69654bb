"""Reports of the sites' audits of their own labels, as counts."""

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
    """The result of a site's audit of its own labels after the last round, as counts.

    Attributes:
        samples: The number of samples.
        flagged: The number of labels that are suspected to be wrong.
        transition: Counts by (suggested class, given class), (K, K) int64; they add up to `samples`.
    """

    samples: int
    flagged: int
    transition: torch.Tensor

    def without_counts(self) -> "SiteReport":
        """Return the report with zeros in place of all counts."""
        return SiteReport(0, 0, torch.zeros_like(self.transition))

    def encode(self) -> RecordDict:
        """Return the counts as a message."""
        content = put_sums(RecordDict(), {"samples": self.samples, "flagged": self.flagged})
        return put_tensors(content, tables={"transition": self.transition})

    @classmethod
    def decode(cls, content: RecordDict, classes: int, declared: int | None = None) -> "SiteReport":
        """Return the counts of a message, over one site or several.

        Args:
            content: The message.
            classes: The number of classes of the model.
            declared: The largest possible number of samples; any number if None.

        Raises:
            ValueError: If counts are missing or impossible.
        """
        sums = get_sums(content)
        samples, flagged = decode_count(sums, "samples"), decode_count(sums, "flagged")
        if flagged > samples:
            raise ValueError(f"it suspects {flagged} of {samples} labels")
        if declared is not None and samples > declared:
            raise ValueError(f"it counts {samples} samples, and {declared} were declared")
        return cls(samples, flagged, decode_table(content, "transition", classes, samples))

    def to_json(self) -> Mapping[str, object]:
        """Return the counts as JSON, which a resumed coordinator reads again."""
        return {"samples": self.samples, "flagged": self.flagged, "transition": self.transition.tolist()}

    @classmethod
    def from_json(cls, facts: Mapping[str, object]) -> "SiteReport":
        """Return the report that `to_json` wrote, with the same checks as for a report from the network.

        Raises:
            ValueError: If counts are missing or impossible.
        """
        samples, flagged, rows = facts["samples"], facts["flagged"], facts["transition"]
        if not isinstance(samples, int) or not isinstance(flagged, int) or not isinstance(rows, list):
            raise ValueError("a count or the table is missing")
        report = cls(samples, flagged, torch.tensor(rows, dtype=torch.int64))
        return cls.decode(report.encode(), len(rows))


@dataclass(frozen=True)
class SiteReports:
    """The results of the audits of all sites.

    Attributes:
        counts: The report of each site, or with masks one report over all sites; empty if there is none.
        finished: The sites that have reported.
        by_client: The reports of single sites; empty if sums were masked.
    """

    counts: list[SiteReport]
    finished: frozenset[int]
    by_client: Mapping[int, SiteReport] = field(default_factory=dict)


def count_suggestions(reports: Iterable[SiteReport]) -> HeldOut:
    """Count over all sites how often each class is suggested and given, and how often both agree."""
    table = torch.stack([report.transition for report in reports]).sum(dim=0)  # (K, K): suggested, given
    suggested, given = table.sum(dim=1).tolist(), table.sum(dim=0).tolist()
    return HeldOut(predicted=suggested, labelled=given, agreed=int(table.diagonal().sum()))


def noise_from_reports(sites: Mapping[int, SiteInfo], reports: SiteReports) -> NoiseEstimate:
    """Estimate the label noise from the counts of the sites' audits.

    Args:
        sites: The greetings of all sites, by number.
        reports: The results of their audits.

    Returns:
        The share of suspected labels over all sites and, without masks, of each site; and Q[i][j], the estimated
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
