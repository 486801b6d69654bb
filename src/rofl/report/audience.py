"""Who reads the page, and what about samples it may therefore hold: all of that comes through here."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rofl.audit.result import Features
from rofl.audit.suspect_list import SuspectRow
from rofl.data.user.names import natural, safe_names
from rofl.errors import unknown
from rofl.report.finished_runs import FinishedRun


@dataclass(frozen=True)
class Audience:
    """Everything, as it is; or what one site may see of samples: its own; or what the server may: none."""

    site: str | None = None
    server: bool = False

    def __post_init__(self) -> None:
        if self.server and self.site is not None:
            raise ValueError("a page is for a site or for the server")

    def file(self, run: FinishedRun) -> str:
        """The page's name, where none is asked for."""
        if self.site is None:
            return "report-server.html" if self.server else "report.html"
        names = _names(run, run.folder.read_suspects())
        files = dict(zip(names, safe_names(["server", *names])[1:], strict=True))  # a site may be called server
        return f"report-{files[_known(self.site, names)]}.html"


@dataclass(frozen=True)
class Client:
    """What may be told of a client to all who may know of it."""

    name: str
    samples: int
    flagged: int
    noise: float  # the estimated share of wrong labels


@dataclass(frozen=True)
class VisibleAudit:
    """What a run found out about samples, as far as an audience may see it."""

    clients: Sequence[Client]
    rows: Sequence[SuspectRow]  # of all samples, most suspicious first
    features: Features | None

    @property
    def suspects(self) -> list[SuspectRow]:
        """The samples whose labels were flagged."""
        return [row for row in self.rows if row.flagged]


def visible_audit(run: FinishedRun, audience: Audience) -> VisibleAudit:
    """Everything about the samples of a run that this audience may see."""
    lines = run.folder.read_suspects()
    clients = _clients(run, lines)
    if audience.server:
        return VisibleAudit(clients, [], None)
    features = run.folder.read_features()
    if audience.site is None:
        return VisibleAudit(clients, lines, features)
    site = _known(audience.site, [client.name for client in clients])
    own = [row for row in lines if row.client == site]
    return VisibleAudit([client for client in clients if client.name == site], own, _only(features, own))


def _clients(run: FinishedRun, lines: Sequence[SuspectRow]) -> list[Client]:
    if run.summary.sites:  # lists and samples are with the sites
        return [
            Client(name, site.samples, site.flagged, site.flagged / max(site.samples, 1))
            for name, site in run.summary.sites.items()
        ]
    samples = Counter(row.client for row in lines)
    flagged = Counter(row.client for row in lines if row.flagged)
    noise = run.summary.estimated.clients if run.summary.estimated else {}  # absent from old runs
    return [
        Client(name, samples[name], flagged[name], noise.get(name, flagged[name] / samples[name]))
        for name in sorted(samples, key=natural)
    ]


def _names(run: FinishedRun, lines: Sequence[SuspectRow]) -> list[str]:
    """The clients in the run's own order, so that their pages are called as their lists of suspects are."""
    there = {row.client for row in lines}
    ordered = [name for name in (run.summary.estimated.clients if run.summary.estimated else {}) if name in there]
    return ordered + sorted(there.difference(ordered), key=natural)


def _known(site: str, names: Sequence[str]) -> str:
    if site not in names:
        raise unknown("site", site, names)
    return site


def _only(features: Features | None, lines: Sequence[SuspectRow]) -> Features | None:
    """The features of these samples; the centroids are everybody's."""
    if features is None:
        return None
    own = torch.isin(features.rows, torch.tensor([row.row for row in lines], dtype=torch.long))  # (m,)
    return Features(features.rows[own], features.features[own], features.centroids)
