"""The files of a run: settings, rounds, checkpoint, client states, summary, suspects, features."""

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rofl.audit.result import AuditResult, Features
from rofl.config.overrides import read_toml
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import Tensors
from rofl.data import atomic
from rofl.data.user.names import safe_names
from rofl.errors import UserError
from rofl.methods.base import ServerState

_SUSPECT = ("sample", "given", "suggested", "score", "flagged")  # columns of a client's list
_OWN_SUSPECT = ("row", "client")  # and of own data, where `sample` is a name


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands: all that is needed to go on as if nothing had happened."""

    index: int  # the last finished round
    server_state: ServerState
    states: dict[int, int]  # client -> round of its state
    entry: dict[str, Any] | None = None  # the round's line, where metrics.jsonl waits for its accuracy


@dataclass(frozen=True)
class RunDir:
    """A run on disk. Every file is written atomically; metrics.jsonl grows by whole lines."""

    path: Path

    @property
    def states(self) -> Path:
        """The folder of client states."""
        return self.path / "states"

    @property
    def checkpoint_path(self) -> Path:
        """The newest checkpoint."""
        return self.path / "checkpoint.safetensors"

    def exists(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "config.toml").is_file()

    def is_finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "summary.json").is_file()

    def read_experiment(self) -> Experiment:
        """The settings the run was started with."""
        if not self.exists():
            raise UserError(f"{self.path} is not a run folder: it has no config.toml.", "rofl run digits --out DIR")
        return parse_experiment(read_toml(self.path / "config.toml"))

    def write_experiment(self, chosen: Experiment) -> None:
        """Keep the settings."""
        atomic.atomic_write(self.path / "config.toml", chosen.toml())

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """One file, so that weights and round never disagree."""
        groups: dict[str, Tensors] = {"model": checkpoint.server_state.model, "aux": checkpoint.server_state.aux}
        states = {str(client): index for client, index in checkpoint.states.items()}
        facts = {"round": checkpoint.index, "states": states, "entry": checkpoint.entry}
        atomic.atomic_write(self.checkpoint_path, serialize(groups, facts))

    def read_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint, or None where the run had not come to one."""
        if not self.checkpoint_path.is_file():
            return None
        try:
            groups, facts = deserialize(self.checkpoint_path.read_bytes())
            states = {int(client): index for client, index in facts["states"].items()}
            aux = groups["aux"] if "aux" in groups else groups["extra"]  # as 0.1 called it
            return Checkpoint(facts["round"], ServerState(groups["model"], aux), states, facts.get("entry"))
        except (ValueError, KeyError, OSError) as error:
            raise UserError(f"{self.checkpoint_path} is damaged ({error}).", "start the run again") from error

    def read_history(self) -> list[dict[str, Any]]:
        """One entry per round; a last line that was cut short does not count."""
        path = self.path / "metrics.jsonl"
        entries = []
        for line in path.read_text().splitlines() if path.is_file() else []:
            try:
                entries.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return entries

    def keep_history(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Replace all entries, when a run goes on from an earlier round than it had written."""
        atomic.atomic_write(self.path / "metrics.jsonl", "".join(json.dumps(entry) + "\n" for entry in entries))

    def append_history(self, entry: Mapping[str, Any]) -> None:
        """Add a round."""
        with open(self.path / "metrics.jsonl", "a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())  # a checkpoint that survives a power cut must not be ahead of it

    def read_summary(self) -> dict[str, Any]:
        """The outcome of a finished run."""
        path = self.path / "summary.json"
        if not path.is_file():
            raise UserError(f"{self.path} holds no finished run.", f"rofl resume {self.path}")
        try:
            summary: dict[str, Any] = json.loads(path.read_text())
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}).", f"delete it, then rofl resume {self.path}") from error
        return summary

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Keep the outcome; a folder with this file is finished."""
        atomic.atomic_write(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")

    def write_suspects(self, file: int | str, rows: list[dict[str, Any]]) -> None:
        """One client's list, most suspicious first; own data has the sample's row and the client's name in it too."""
        text = io.StringIO()
        columns = [*_SUSPECT, *(name for name in _OWN_SUSPECT if rows and name in rows[0])]
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        atomic.atomic_write(self.path / "suspects" / f"{file}.csv", text.getvalue())

    def write_audit(self, result: AuditResult) -> None:
        """Write each client's own list and the features; nothing of one client stands in another's file."""
        views = result.federated.client_views
        for (client, rows), file in zip(views, safe_names([client for client, _ in views]), strict=True):
            self.write_suspects(file, list(result.rows(client, rows)))
        self.write_features(result.features)

    def write_features(self, kept: Features) -> None:
        """Keep the features of some samples."""
        centroids = {} if kept.centroids is None else {"centroids": kept.centroids}
        groups: dict[str, Tensors] = {"samples": {"rows": kept.rows, "features": kept.features}, "classes": centroids}
        atomic.atomic_write(self.path / "features.safetensors", serialize(groups, {}))

    def read_features(self) -> Features | None:
        """The kept features; None where there are none that can be read, which costs but a picture."""
        try:
            groups, _ = deserialize((self.path / "features.safetensors").read_bytes())
            return Features(**groups["samples"], centroids=groups.get("classes", {}).get("centroids"))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write_left_out(self, lines: Iterable[str]) -> None:
        """What of own data could not be read; no file where all could."""
        text = "".join(f"{line}\n" for line in lines)
        if text:
            atomic.atomic_write(self.path / "left_out.txt", text)

    def read_suspects(self) -> list[dict[str, Any]]:
        """All clients' lists in one, most suspicious first. `row` numbers a sample; `client` is a number or a name."""
        rows: list[dict[str, Any]] = []
        for path in sorted((self.path / "suspects").glob("*.csv")):
            with open(path, newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    number = int(row["row"] if "row" in row else row["sample"])
                    name = int(path.stem) if path.stem.isdecimal() else path.stem
                    rows.append({**row, "row": number, "client": row.get("client", name)})
        return sorted(rows, key=lambda row: (-float(row["score"]), row["row"]))
