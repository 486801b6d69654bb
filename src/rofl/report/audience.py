"""Who reads the page, and what about samples it may therefore hold: all of that comes through here."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rofl.audit.result import Features
from rofl.data.user.names import natural, safe_names
from rofl.errors import unknown
from rofl.report.finished_runs import FinishedRun, is_flagged, sites

Line = Mapping[str, Any]  # of a suspects file: row, client, sample, given, suggested, score, flagged


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
    lines: Sequence[Line]  # of all samples, most suspicious first
    features: Features | None

    @property
    def suspects(self) -> list[Line]:
        """The samples whose labels were flagged."""
        return [line for line in self.lines if is_flagged(line)]


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
    own = [line for line in lines if str(line["client"]) == site]
    return VisibleAudit([client for client in clients if client.name == site], own, _only(features, own))


def _clients(run: FinishedRun, lines: Sequence[Line]) -> list[Client]:
    counts = sites(run.summary)
    if counts:  # lists and samples are with the sites
        return [
            Client(name, samples, flagged, flagged / max(samples, 1)) for name, (samples, flagged) in counts.items()
        ]
    samples = Counter(str(line["client"]) for line in lines)
    flagged = Counter(str(line["client"]) for line in lines if is_flagged(line))
    noise = (run.summary.get("estimated") or {}).get("clients", {})  # absent from old runs
    return [
        Client(name, samples[name], flagged[name], noise.get(name, flagged[name] / samples[name]))
        for name in sorted(samples, key=natural)
    ]


def _names(run: FinishedRun, lines: Sequence[Line]) -> list[str]:
    """The clients in the run's own order, so that their pages are called as their lists of suspects are."""
    there = {str(line["client"]) for line in lines}
    told = [name for name in (run.summary.get("estimated") or {}).get("clients", {}) if name in there]
    return told + sorted(there.difference(told), key=natural)


def _known(site: str, names: Sequence[str]) -> str:
    if site not in names:
        raise unknown("site", site, names)
    return site


def _only(features: Features | None, lines: Sequence[Line]) -> Features | None:
    """The features of these samples; the centroids are everybody's."""
    if features is None:
        return None
    own = torch.isin(features.rows, torch.tensor([int(line["row"]) for line in lines]))  # (m,)
    return Features(features.rows[own], features.features[own], features.centroids)
