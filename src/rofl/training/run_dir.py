"""The files of a run: settings, rounds, checkpoint, client states, summary, suspects, features."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rofl.audit.result import AuditResult, Features
from rofl.audit.suspect_list import SuspectRow, read_suspects, sort_suspects, write_suspects
from rofl.config.overrides import read_toml
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import Tensors
from rofl.data.atomic import atomic_write
from rofl.data.user.names import safe_names
from rofl.data.user.table_encoder import TableEncoder
from rofl.errors import UserError
from rofl.methods.base import ServerState
from rofl.training.records import RoundRecord, RunSummary


@dataclass(frozen=True)
class BestModel:
    """The server state of the best round so far."""

    round: int
    server_state: ServerState


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands: all that is needed to continue with the same bits."""

    index: int  # the last finished round
    server_state: ServerState
    states: dict[int, int]  # client -> round of its state
    pending_record: RoundRecord | None = None  # the last round's, where metrics.jsonl waits for its accuracy
    best: BestModel | None = None  # written to a file of its own, unless it is this very round's


@dataclass(frozen=True)
class RunDir:
    """A run on disk, file by file as docs/run-folder.md describes it.

    Every file is written atomically; metrics.jsonl grows by whole lines. A damaged file raises a UserError that names
    it, except where a run can do without it.
    """

    path: Path

    @property
    def states(self) -> Path:
        """The directory of client states."""
        return self.path / "states"

    @property
    def checkpoint_path(self) -> Path:
        """The file of the newest checkpoint."""
        return self.path / "checkpoint.safetensors"

    def exists(self) -> bool:
        """Return True if a run was started here."""
        return (self.path / "config.toml").is_file()

    def is_finished(self) -> bool:
        """Return True if the run is finished."""
        return (self.path / "summary.json").is_file()

    @property
    def is_served(self) -> bool:
        """Return True if this is the folder of a coordinator."""
        return (self.path / "serve.toml").is_file()

    def remove(self) -> None:
        """Delete the run, if there is one."""
        if self.exists():
            shutil.rmtree(self.path)

    def read_experiment(self) -> Experiment:
        """Return the settings that the run was started with; names of 0.1 are read too."""
        if not self.exists():
            raise UserError(f"{self.path} is not a run folder: it has no config.toml.", "rofl run digits --out DIR")
        return parse_experiment(read_toml(self.path / "config.toml"))

    def write_experiment(self, chosen: Experiment) -> None:
        """Write the settings."""
        atomic_write(self.path / "config.toml", chosen.toml())

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint: one file, so that weights and round never disagree; the best model before it."""
        best = checkpoint.best
        if best is not None and best.round != checkpoint.index and not self._best_path(best.round).is_file():
            atomic_write(self._best_path(best.round), serialize(_groups(best.server_state), {"round": best.round}))
        states = {str(client): index for client, index in checkpoint.states.items()}
        pending = checkpoint.pending_record
        facts = {
            "round": checkpoint.index,
            "states": states,
            "pending_record": None if pending is None else pending.model_dump(),
        }
        atomic_write(self.checkpoint_path, serialize(_groups(checkpoint.server_state), facts))
        self.prune_best(None if best is None else best.round)

    def read_checkpoint(self) -> Checkpoint | None:
        """Return the newest checkpoint, or None if the run has not written one."""
        if not self.checkpoint_path.is_file():
            return None
        try:
            groups, facts = deserialize(self.checkpoint_path.read_bytes())
            states = {int(client): index for client, index in facts["states"].items()}
            aux = groups["aux"] if "aux" in groups else groups["extra"]  # as 0.1 called it
            pending = facts.get("pending_record", facts.get("entry"))  # as 0.1 called it
            record = None if pending is None else RoundRecord.model_validate(pending)
            return Checkpoint(facts["round"], ServerState(groups["model"], aux), states, record)
        except (ValueError, KeyError, OSError, AttributeError, TypeError) as error:
            raise UserError(f"{self.checkpoint_path} is damaged ({error}).", "start the run again") from error

    def read_best(self, index: int) -> BestModel:
        """Return the model of the best round, which a checkpoint of a later one left.

        Raises:
            UserError: the file is missing or damaged.
        """
        path = self._best_path(index)
        try:
            groups, facts = deserialize(path.read_bytes())
            return BestModel(facts["round"], ServerState(groups["model"], groups["aux"]))
        except (ValueError, KeyError, OSError, TypeError) as error:
            raise UserError(f"{path} cannot be read ({error}).", "start the run again") from error

    def read_model(self, summary: RunSummary) -> ServerState:
        """Return the server state that a finished run saved: that of the best or of the last round.

        Raises:
            UserError: there is none, or its file is damaged.
        """
        last = self.read_checkpoint()
        if last is None:
            raise UserError(f"{self.path} has no checkpoint, so that its model is lost.", "run it again")
        if summary.selected_round in (None, last.index):
            return last.server_state
        return self.read_best(summary.selected_round).server_state

    def prune_best(self, keep: int | None) -> None:
        """Remove the models of rounds that were the best for a while."""
        for path in self.path.glob("best-*.safetensors"):
            if keep is None or path != self._best_path(keep):
                path.unlink(missing_ok=True)

    def _best_path(self, index: int) -> Path:
        return self.path / f"best-{index}.safetensors"

    def read_history(self) -> list[RoundRecord]:
        """Return a record per round; a last line that was cut short does not count."""
        path = self.path / "metrics.jsonl"
        records = []
        for line in path.read_text().splitlines() if path.is_file() else []:
            try:
                records.append(RoundRecord.model_validate_json(line))
            except ValidationError:
                break
        return records

    def write_history(self, records: Iterable[RoundRecord]) -> None:
        """Replace all records, when a run goes on from an earlier round than it had written."""
        atomic_write(self.path / "metrics.jsonl", "".join(record.model_dump_json() + "\n" for record in records))

    def append_history(self, record: RoundRecord) -> None:
        """Add a round, flushed to disk: a checkpoint that survives a power cut must not be ahead of it."""
        with open(self.path / "metrics.jsonl", "a") as file:
            file.write(record.model_dump_json() + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read_summary(self) -> RunSummary:
        """Return the outcome of a finished run."""
        path = self.path / "summary.json"
        if not path.is_file():
            raise UserError(f"{self.path} holds no finished run.", f"rofl resume {self.path}")
        try:
            return RunSummary.model_validate_json(path.read_text())
        except ValueError as error:
            problem = f"{path} is damaged ({_first_problem(error)})."
            raise UserError(problem, f"delete it, then rofl resume {self.path}") from error

    def write_summary(self, summary: RunSummary) -> None:
        """Write the outcome; a directory with this file is finished."""
        atomic_write(self.path / "summary.json", summary.to_json())

    def write_audit(self, result: AuditResult) -> None:
        """Write each client's own list and the features; nothing of one client stands in another's file."""
        views = result.federated.client_views
        for (client, rows), file in zip(views, safe_names([client for client, _ in views]), strict=True):
            self.write_suspects(file, result.client_rows(client, rows), named=bool(result.federated.images.ids))
        self.write_features(result.features)

    def write_suspects(self, file: str, rows: Iterable[SuspectRow], named: bool) -> None:
        """Write one client's list.

        Args:
            file: the file's name without its ending.
            rows: the samples, most suspicious first.
            named: whether samples have names.
        """
        write_suspects(self.path / "suspects" / f"{file}.csv", rows, named)

    def write_features(self, kept: Features) -> None:
        """Write the features of some samples."""
        centroids = {} if kept.centroids is None else {"centroids": kept.centroids}
        groups: dict[str, Tensors] = {"samples": {"rows": kept.rows, "features": kept.features}, "classes": centroids}
        atomic_write(self.path / "features.safetensors", serialize(groups, {}))

    def read_features(self) -> Features | None:
        """Return the features, or None if there are none that can be read: only the t-SNE picture needs them."""
        try:
            groups, _ = deserialize((self.path / "features.safetensors").read_bytes())
            return Features(**groups["samples"], centroids=groups.get("classes", {}).get("centroids"))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write_left_out(self, lines: Iterable[str]) -> None:
        """Write which files of the user's data could not be read; no file where all could."""
        text = "".join(f"{line}\n" for line in lines)
        if text:
            atomic_write(self.path / "left_out.txt", text)

    def write_encoder(self, encoder: TableEncoder | None) -> None:
        """Write the encoder of a user's table to encoder.json; no file for other data."""
        if encoder is not None:
            atomic_write(self.path / "encoder.json", encoder.to_json())

    def read_encoder(self) -> TableEncoder | None:
        """Return the encoder of the run's table, or None if it has none.

        Raises:
            UserError: the file is damaged.
        """
        path = self.path / "encoder.json"
        return TableEncoder.from_json(path.read_text(encoding="utf-8")) if path.is_file() else None

    def read_suspects(self) -> list[SuspectRow]:
        """Return all clients' lists in one, most suspicious first."""
        paths = sorted((self.path / "suspects").glob("*.csv"))
        return sort_suspects(row for path in paths for row in read_suspects(path))


def _groups(server_state: ServerState) -> dict[str, Tensors]:
    return {"model": server_state.model, "aux": server_state.aux}


def _first_problem(error: ValueError) -> str:
    """One line about what is wrong with a file."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
