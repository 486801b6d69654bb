"""The sites' final reports, stored in a file so that a resumed coordinator asks only the remaining sites."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rofl.audit.held_out_noise import ScoreSums
from rofl.audit.noise_estimation import PredictionSums, SureSums
from rofl.core.held_out_fit import HeldOutSums
from rofl.core.noise_posterior import noise_pattern
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

REPORTS_FILE = "farewells.json"  # an older name of these reports
_MAX_BYTES = 2**28
_NO_SUMS = {"predictions": None, "sure": None}


class FinalReports:
    """The results of the sites' audits that have arrived so far.

    Args:
        path: The file; None to keep the results in memory only.

    Attributes:
        finished: The sites that have reported.
        reports: The reports of single sites; empty if sums are masked.
        together: With masks, the report summed over all sites; None until it has arrived.
        predictions: The first-pass sums of the noise estimate over all sites; None until they have arrived.
        counted: The sites that are in these sums.
        sure: The second-pass sums; None until they have arrived.
        held_out: The second-pass sums over held-out samples; None if no site sent any.
        scores: The third-pass sums; None until they have arrived.

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
        """Record that a site has finished, with its report if there is one."""
        self.finished.add(client)
        if report is not None:
            self.reports[client] = report
        self._write()

    def add_sum(self, found: Sequence[SiteReport]) -> None:
        """Store the report summed over all sites, which sites send only once."""
        self.together = list(found)
        self._write()

    def add_predictions(self, sums: PredictionSums, counted: Iterable[int]) -> None:
        """Store the first-pass sums over all sites, and which sites they include."""
        self.predictions, self.counted = sums, frozenset(counted)
        self._write()

    def add_sure(self, sums: SureSums, held_out: HeldOutSums | None) -> None:
        """Store the second-pass sums over all sites; `held_out` is None if no site sent any."""
        self.sure, self.held_out = sums, held_out
        self._write()

    def add_scores(self, sums: ScoreSums | None) -> None:
        """Store the third-pass sums over all sites; None if no site sent any."""
        self.scores = sums
        self._write()

    def result(self) -> SiteReports:
        """Return the reports of all sites."""
        reports = {client: self.reports[client] for client in sorted(self.reports)}
        counts = list(reports.values()) if self.together is None else self.together
        return SiteReports(counts, frozenset(self.finished), reports)

    def _read(self, path: Path) -> None:
        try:
            facts = parse_json(read_regular(path, _MAX_BYTES, follow=False).decode())
            self.finished = {int(client) for client in facts["finished"]}
            self.reports = {int(client): SiteReport.from_json(each) for client, each in facts["reports"].items()}
            together = facts["together"]
            self.together = None if together is None else [SiteReport.from_json(each) for each in together]
            self._parse_noise(facts.get("noise") or _NO_SUMS)  # none in files of protocol 3
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RuntimeError) as error:
            raise UserError(f"{path} is damaged ({error}).", "delete it; the sites send it again") from error

    def _parse_noise(self, facts: Mapping[str, Any]) -> None:
        """Read the sums of the noise estimate, with the same checks as for sums that arrive over the network."""
        if facts["predictions"] is not None:
            table, doubt = torch.tensor(facts["predictions"], dtype=torch.int64), float(facts["doubt"])
            sums = encode_predictions(PredictionSums(table, doubt))
            self.predictions = decode_predictions(sums, len(table), int(table.sum()))
            self.counted = frozenset(int(client) for client in facts["counted"])
        if facts["sure"] is not None and self.predictions is not None:
            sure, held_out = SureSums(*(int(each) for each in facts["sure"])), no_held_out()
            if facts.get("held_out") is not None:  # none in files of protocol 6
                table = torch.tensor(facts["held_out"]["table"], dtype=torch.float64)
                held_out = HeldOutSums(table, int(facts["held_out"]["samples"]))
            most = max(self.predictions.samples, held_out.samples)
            pattern = noise_pattern(self.predictions.counts)
            self.sure, held_out = decode_sure(encode_sure(sure, held_out), most, pattern)
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
            "reports": {client: each.to_json() for client, each in self.reports.items()},
            "together": None if self.together is None else [each.to_json() for each in self.together],
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
    return {"samples": sums.samples, "table": sums.table.tolist()}


def _score_facts(sums: ScoreSums) -> Mapping[str, object]:
    return {"samples": sums.samples, "sums": sums.scores.tolist()}
