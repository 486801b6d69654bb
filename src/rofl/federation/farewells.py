"""The sites' final reports, in a file: after a kill the coordinator asks only the others."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rofl.audit.held_out_noise import HeldOutSums, ScoreSums
from rofl.audit.noise_estimation import PredictionSums, SureSums
from rofl.core.serialization import parse_json
from rofl.data import atomic
from rofl.data.regular_file import read_regular
from rofl.errors import UserError
from rofl.federation.noise_records import (
    decode_predictions,
    decode_scores,
    decode_sure,
    encode_predictions,
    encode_scores,
    encode_sure,
    no_held_out,
)
from rofl.federation.site_report import SiteReport, SiteReports

FAREWELLS_FILE = "farewells.json"
_MAX_BYTES = 2**28
_NO_SUMS = {"predictions": None, "sure": None}


class Farewells:
    """The results of the sites' audits, as far as they are known.

    Args:
        path: The file; None to remember it in this process only.

    Attributes:
        finished: The sites that have reported.
        reports: What single sites found; none where sums are masked.
        together: What all sites found, where sums are masked; None before it is known.
        predictions: The sums of all sites for an estimate of the label noise; None before they are known.
        counted: The sites that these are of.
        sure: The sums of the second pass; None before they are known.
        held_out: Those of held-out samples; None where no site sent any.
        scores: The sums of the third pass; None before they are known.

    Raises:
        UserError: If the file is damaged.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.finished: set[int] = set()
        self.reports: dict[int, SiteReport] = {}
        self.together: list[SiteReport] | None = None
        self.predictions: PredictionSums | None = None
        self.counted: frozenset[int] = frozenset()
        self.sure: SureSums | None = None
        self.held_out: HeldOutSums | None = None
        self.scores: ScoreSums | None = None
        if path is not None and path.exists():
            self._read(path)

    def add(self, client: int, report: SiteReport | None) -> None:
        """Save that a site has finished, and its report where that is known."""
        self.finished.add(client)
        if report is not None:
            self.reports[client] = report
        self._write()

    def add_sum(self, found: Sequence[SiteReport]) -> None:
        """Keep what all sites found together: sites give it once."""
        self.together = list(found)
        self._write()

    def add_predictions(self, sums: PredictionSums, counted: Iterable[int]) -> None:
        """Keep the sums of the first pass over all sites, and of which sites they are."""
        self.predictions, self.counted = sums, frozenset(counted)
        self._write()

    def add_sure(self, sums: SureSums, held_out: HeldOutSums | None) -> None:
        """Keep the sums of the second pass over all sites; `held_out` is None where no site sent any."""
        self.sure, self.held_out = sums, held_out
        self._write()

    def add_scores(self, sums: ScoreSums | None) -> None:
        """Keep the sums of the third pass over all sites; nothing where they are None."""
        self.scores = sums
        self._write()

    def result(self) -> SiteReports:
        """Return what the sites found."""
        reports = {client: self.reports[client] for client in sorted(self.reports)}
        counts = list(reports.values()) if self.together is None else self.together
        return SiteReports(counts, frozenset(self.finished), reports)

    def _read(self, path: Path) -> None:
        try:
            facts = parse_json(read_regular(path, _MAX_BYTES, follow=False).decode())
            self.finished = {int(client) for client in facts["finished"]}
            self.reports = {int(client): _parse(each) for client, each in facts["reports"].items()}
            together = facts["together"]
            self.together = None if together is None else [_parse(each) for each in together]
            self._parse_noise(facts.get("noise") or _NO_SUMS)  # none in files of protocol 3
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RuntimeError) as error:
            raise UserError(f"{path} is damaged ({error}).", "delete it; the sites say it again") from error

    def _parse_noise(self, facts: Mapping[str, Any]) -> None:
        """Read the sums for an estimate of the label noise, checked like those that arrive."""
        if facts["predictions"] is not None:
            table, doubt = torch.tensor(facts["predictions"], dtype=torch.int64), float(facts["doubt"])
            sums = encode_predictions(PredictionSums(table, doubt))
            self.predictions = decode_predictions(sums, len(table), int(table.sum()))
            self.counted = frozenset(int(client) for client in facts["counted"])
        if facts["sure"] is not None and self.predictions is not None:
            sure, held_out = SureSums(*(int(each) for each in facts["sure"])), no_held_out()
            if facts.get("held_out") is not None:  # none in files of protocol 6
                likelihoods = torch.tensor(facts["held_out"]["likelihoods"], dtype=torch.float64)
                held_out = HeldOutSums(likelihoods, int(facts["held_out"]["samples"]))
            most = max(self.predictions.samples, held_out.samples)
            self.sure, held_out = decode_sure(encode_sure(sure, held_out), most)
            self.held_out = held_out if held_out.samples else None
        if facts.get("scores") is not None:
            scores = torch.tensor(facts["scores"]["sums"], dtype=torch.float64)
            judged = ScoreSums(scores, int(facts["scores"]["samples"]))
            self.scores = decode_scores(encode_scores(judged), judged.samples)

    def _write(self) -> None:
        if self._path is None:
            return
        facts = {
            "finished": sorted(self.finished),
            "reports": {client: _facts(each) for client, each in self.reports.items()},
            "together": None if self.together is None else [_facts(each) for each in self.together],
            "noise": {
                "predictions": None if self.predictions is None else self.predictions.counts.tolist(),
                "doubt": 0.0 if self.predictions is None else self.predictions.doubt,
                "counted": sorted(self.counted),
                "sure": None if self.sure is None else [self.sure.samples, self.sure.disagreements],
                "held_out": None if self.held_out is None else _held_out_facts(self.held_out),
                "scores": None if self.scores is None else _score_facts(self.scores),
            },
        }
        atomic.atomic_write(self._path, json.dumps(facts) + "\n")


def _held_out_facts(sums: HeldOutSums) -> Mapping[str, object]:
    return {"samples": sums.samples, "likelihoods": sums.likelihoods.tolist()}


def _score_facts(sums: ScoreSums) -> Mapping[str, object]:
    return {"samples": sums.samples, "sums": sums.scores.tolist()}


def _facts(report: SiteReport) -> Mapping[str, object]:
    return {"samples": report.samples, "flagged": report.flagged, "transition": report.transition.tolist()}


def _parse(facts: Mapping[str, object]) -> SiteReport:
    """Return a report that `_facts` wrote, checked like one that arrives."""
    rows = facts["transition"]
    if not isinstance(rows, list):
        raise ValueError("a table is missing")
    samples, flagged = facts["samples"], facts["flagged"]
    if not isinstance(samples, int) or not isinstance(flagged, int):
        raise ValueError("a count is missing")
    table = torch.tensor(rows, dtype=torch.int64)
    return SiteReport.decode(SiteReport(samples, flagged, table).encode(), len(rows))
