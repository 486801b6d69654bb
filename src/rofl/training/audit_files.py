"""Reads and writes the files of an audit in a run folder: suspects, other issues, features, estimated label noise."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rofl.audit.noise_estimation import LabelNoise
from rofl.audit.result import AuditResult, Features
from rofl.audit.sample_issues import SampleIssue
from rofl.audit.suspect_list import (
    SuspectRow,
    read_issues,
    read_suspects,
    sort_issues,
    sort_suspects,
    write_issues,
    write_suspects,
)
from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import Tensors
from rofl.data.atomic import atomic_write
from rofl.data.regular_file import read_regular
from rofl.data.user.names import safe_names
from rofl.errors import UserError
from rofl.training.records import AuditRecord
from rofl.training.run_files import LOCK_FILE, first_problem, read_text

_UNFINISHED = "unfinished"  # marks the folder of an audit of new data until audit.json is written
_LISTS = ("suspects", "issues")  # folders with a CSV file per client
_SINGLE_FILES = ("features.safetensors", "left_out.txt", "encoder.json")


@dataclass(frozen=True)
class AuditFiles:
    """The files of an audit in a run folder."""

    path: Path

    @property
    def is_unfinished(self) -> bool:
        """Whether an audit of new data was interrupted while it wrote its files here, and nothing else is here."""
        if not self.path.is_dir() or (self.path / "audit.json").exists():
            return False
        # a killed atomic_write leaves `.name.new`
        names = {re.sub(r"^\.(.+)\.new$", r"\1", each.name) for each in self.path.iterdir()}
        own = {_UNFINISHED, LOCK_FILE, "audit.json", *_LISTS, *_SINGLE_FILES}
        return _UNFINISHED in names and names <= own

    def begin(self) -> None:
        """Mark an audit of new data as unfinished until `write_record`; delete the files of an interrupted one."""
        lists = [path for folder in _LISTS for path in (self.path / folder).glob("*.csv")]
        for path in (*lists, *(self.path / name for name in _SINGLE_FILES)):
            path.unlink(missing_ok=True)
        atomic_write(self.path / _UNFINISHED, "The audit that writes this folder has not finished.\n")

    def write(self, result: AuditResult) -> None:
        """Write a list per client, and the features; a client's file holds only its own samples."""
        views = result.federated.client_views
        for (client, rows), file in zip(views, safe_names([client for client, _ in views]), strict=True):
            self.write_suspects(file, result.client_rows(client, rows), named=bool(result.federated.images.ids))
            issues = [issue for issue in result.issues if issue.client == client]
            (self.path / "issues" / f"{file}.csv").unlink(missing_ok=True)  # of an earlier audit
            if issues:
                write_issues(self.path / "issues" / f"{file}.csv", issues)
        self.write_features(result.features)

    def write_suspects(self, file: str, rows: Iterable[SuspectRow], named: bool) -> None:
        """Write one client's list.

        Args:
            file: the file's name without its ending.
            rows: the samples, most suspicious first.
            named: whether samples have names.
        """
        write_suspects(self.path / "suspects" / f"{file}.csv", rows, named)

    def read_issues(self) -> Sequence[SampleIssue]:
        """Return the near-duplicates and outliers of all clients; none for runs of old versions."""
        paths = sorted((self.path / "issues").glob("*.csv"))
        return sort_issues(issue for path in paths for issue in read_issues(path))

    def write_record(self, record: AuditRecord) -> None:
        """Write audit.json, which marks the folder of a finished audit of new data."""
        atomic_write(self.path / "audit.json", record.to_json())
        (self.path / _UNFINISHED).unlink(missing_ok=True)

    def read_record(self) -> AuditRecord | None:
        """Return the record in audit.json, or None if this is not the folder of an audit of new data.

        Raises:
            UserError: the file is damaged.
        """
        path = self.path / "audit.json"
        if not path.is_file():
            return None
        try:
            return AuditRecord.model_validate_json(read_regular(path, follow=False))
        except (OSError, ValueError) as error:
            problem = f"{path} is damaged ({first_problem(error)})."
            raise UserError(problem, "rofl audit --model RUN --data PATH again") from error

    def write_features(self, kept: Features) -> None:
        """Write the features of some samples."""
        centroids = {} if kept.centroids is None else {"centroids": kept.centroids}
        groups: dict[str, Tensors] = {"samples": {"rows": kept.rows, "features": kept.features}, "classes": centroids}
        atomic_write(self.path / "features.safetensors", serialize(groups, {}))

    def read_features(self) -> Features | None:
        """Return the features, or None if they are missing or unreadable; only the t-SNE plot needs them."""
        try:
            groups, _ = deserialize(read_regular(self.path / "features.safetensors", follow=False))
            kept = Features(**groups["samples"], centroids=groups.get("classes", {}).get("centroids"))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return kept if kept.is_sound else None

    def write_noise(self, noise: LabelNoise | None) -> None:
        """Write noise.json: the label noise over all sites of a federation; no file if it is unknown."""
        (self.path / "noise.json").unlink(missing_ok=True)
        if noise is not None:
            atomic_write(self.path / "noise.json", noise.to_json())

    def read_noise(self, classes: int) -> LabelNoise | None:
        """Return the label noise over all sites of a federation, or None if this run has no such estimate.

        Raises:
            UserError: the file is damaged, or has another number of classes.
        """
        path = self.path / "noise.json"
        text = read_text(path)
        try:
            return None if text is None else LabelNoise.from_json(text, classes)
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}).", "a copy of it as it was") from error

    def read_suspects(self) -> list[SuspectRow]:
        """Return the suspects of all clients, most suspicious first."""
        paths = sorted((self.path / "suspects").glob("*.csv"))
        return sort_suspects(row for path in paths for row in read_suspects(path))
