"""The audience of a page, and the parts of an audit that it may see.

Everything a page says about single samples comes through `visible_audit`, so the page of one site cannot contain
samples of another.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rofl.audit.noise_estimation import interval_text
from rofl.audit.result import Features
from rofl.audit.sample_issues import SampleIssue
from rofl.audit.suspect_list import SuspectRow
from rofl.data.user.names import natural, safe_names
from rofl.errors import unknown
from rofl.report.finished_runs import Audited, FinishedRun, expected_wrong, has_bounds


@dataclass(frozen=True)
class Audience:
    """The readers of a page: they see all samples (default), one site's own, or none (the server).

    Args:
        site: the name of a client; the page shows only its samples.
        server: whether the page is for the coordinator, who sees counts per client and no samples.
    """

    site: str | None = None
    server: bool = False

    def __post_init__(self) -> None:
        if self.server and self.site is not None:
            raise ValueError("a page is for a site or for the server")

    def file_name(self, run: Audited) -> str:
        """Return the default file name of the page, for example `report-<site>.html` for a site."""
        if self.site is None:
            return "report-server.html" if self.server else "report.html"
        names = _client_names(run, run.folder.audit.read_suspects())
        files = dict(zip(names, safe_names(["server", *names])[1:], strict=True))  # a site may be called server
        return f"report-{files[_check_site(self.site, names)]}.html"


@dataclass(frozen=True)
class ClientNoise:
    """The number of suspect labels of a client; every audience that sees the client may see these counts."""

    name: str
    samples: int
    flagged: int
    expected: float | None = None  # number of wrong labels, the sum of the scores; None if they are unreliable
    interval: str = ""  # confidence bounds of the share of wrong labels as text; "" if unknown

    @property
    def flagged_share(self) -> float:
        """The share of labels that are flagged; 0 for a client without samples."""
        return self.flagged / max(self.samples, 1)


@dataclass(frozen=True)
class VisibleAudit:
    """The part of a run's audit that an audience may see."""

    clients: Sequence[ClientNoise]
    rows: Sequence[SuspectRow]  # all visible samples, most suspicious first
    features: Features | None
    issues: Sequence[SampleIssue] = ()  # near-duplicates and outliers
    scores_count: bool = False  # whether scores are probabilities, so that their sum is a count; false for old runs

    @property
    def expected(self) -> float | None:
        """The expected number of wrong labels, the sum of their scores; None if the scores are not reliable."""
        if self.rows:
            return expected_wrong(self.rows)
        known = [client.expected for client in self.clients if client.expected is not None]  # the server sees no rows
        return sum(known) if len(known) == len(self.clients) else None

    @property
    def unflagged_note(self) -> str:
        """A sentence about wrong labels among those that are not flagged; "" if none are expected."""
        left = [row.score for row in self.rows if not row.flagged]
        if not self.scores_count or sum(left) < 1:
            return ""
        if self.expected is None:
            return "The model is unsure of most samples: its scores do not tell how many labels are wrong."
        return (
            f"About {round(sum(left))} of the labels that are not flagged are expected to be wrong, too; the lists in "
            "the folder suspects continue with them, by score."
        )

    @property
    def suspects(self) -> list[SuspectRow]:
        """The samples whose labels are flagged, most suspicious first."""
        return [row for row in self.rows if row.flagged]


def visible_audit(run: Audited, audience: Audience) -> VisibleAudit:
    """Return the part of a run's audit that an audience may see.

    Raises:
        UserError: the run has no such site.
    """
    rows = run.folder.audit.read_suspects()
    clients = _client_noise(run, rows)
    if audience.server:
        return VisibleAudit(clients, [], None)
    features, issues = run.folder.audit.read_features(), run.folder.audit.read_issues()
    scores_count = has_bounds(run)
    if audience.site is None:
        return VisibleAudit(clients, rows, features, issues, scores_count)
    site = _check_site(audience.site, [client.name for client in clients])
    site_rows = [row for row in rows if row.client == site]
    site_clients = [client for client in clients if client.name == site]
    site_issues = [issue for issue in issues if issue.client == site]
    return VisibleAudit(site_clients, site_rows, _select_features(features, site_rows), site_issues, scores_count)


def _client_noise(run: Audited, rows: Sequence[SuspectRow]) -> list[ClientNoise]:
    """Return one row per client, in natural order; for a federation, in the order of the summary."""
    if isinstance(run, FinishedRun) and run.summary.sites:  # a federation: lists and samples stay at the sites
        sites = run.summary.sites
        known = {name: site.flagged for name, site in sites.items() if site.flagged is not None}
        if len(known) < len(sites):  # masked: only the sum is known
            name, count = f"{', '.join(sites)} together", run.flagged
            return [ClientNoise(name, run.samples, count)]
        return [ClientNoise(name, sites[name].samples, count) for name, count in known.items()]
    samples = Counter(row.client for row in rows)
    flagged = Counter(row.client for row in rows if row.flagged)
    of_client: dict[str, list[SuspectRow]] = {}
    for row in rows if has_bounds(run) else ():
        of_client.setdefault(row.client, []).append(row)
    expected = {name: expected_wrong(own) for name, own in of_client.items()}
    bounds = run.summary.estimated.intervals if run.summary.estimated else {}  # old runs have none
    words = {name: interval_text(interval) for name, interval in bounds.items()}
    return [
        ClientNoise(name, samples[name], flagged[name], expected.get(name), words.get(name, ""))
        for name in sorted(samples, key=natural)
    ]


def _client_names(run: Audited, rows: Sequence[SuspectRow]) -> list[str]:
    """Return the clients in the run's order, so that their pages are named like their lists of suspects."""
    clients = {row.client for row in rows}
    estimates = run.summary.estimated.clients if run.summary.estimated else {}
    ordered = [name for name in estimates if name in clients]
    return ordered + sorted(clients.difference(ordered), key=natural)


def _check_site(site: str, names: Sequence[str]) -> str:
    """Return the site, or raise a UserError that suggests the nearest name if no client has this name."""
    if site not in names:
        raise unknown("site", site, names)
    return site


def _select_features(features: Features | None, rows: Sequence[SuspectRow]) -> Features | None:
    """Return only the features of these samples. The centroids are global, so every site may see them."""
    if features is None:
        return None
    chosen = torch.isin(features.rows, torch.tensor([row.row for row in rows], dtype=torch.long))  # (m,)
    return Features(features.rows[chosen], features.features[chosen], features.centroids)
