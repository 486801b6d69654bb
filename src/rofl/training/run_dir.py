"""The files of a run: settings, rounds, checkpoint, client states, summary, suspects, features."""

import difflib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
from pydantic import TypeAdapter, ValidationError

from rofl.audit.issue_list import read_issues, sort_issues, write_issues
from rofl.audit.noise_sums import LabelNoise
from rofl.audit.result import AuditResult, Features
from rofl.audit.sample_issues import SampleIssue
from rofl.audit.suspect_list import SuspectRow, read_suspects, sort_suspects, write_suspects
from rofl.config.overrides import read_toml
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.classification import Classification
from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import Tensors, digest
from rofl.data.atomic import append_text, atomic_write
from rofl.data.regular_file import read_regular
from rofl.data.user.encoders import Encoder, encoder_from_json
from rofl.data.user.names import safe_names
from rofl.errors import UserError
from rofl.methods.base import ServerState
from rofl.models.pretrained import backbone_entries
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.records import AuditRecord, CheckpointFacts, RoundRecord, RunSummary
from rofl.training.round_log import format_record, read_round_log
from rofl.training.saved_model.model_record import ModelRecord

_EVALUATION = TypeAdapter(Classification)
_NAMES = TypeAdapter(list[str])
_MOST_NAMES = 2**20  # bytes of clients.json


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
    log_digest: str = ""  # of the lines that metrics.jsonl had by then; "" in checkpoints of earlier versions


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

    @property
    def log_path(self) -> Path:
        """The file with a record per round."""
        return self.path / "metrics.jsonl"

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
            raise self._no_run()
        return parse_experiment(read_toml(self.path / "config.toml"))

    def _no_run(self) -> UserError:
        """Return the error of a folder that holds no run, which suggests a run that lies beside it."""
        sentence = f"There is no {self.path}."
        if self.path.exists():
            sentence = f"{self.path} is not a run folder: it has no config.toml."
        beside = {str(run.parent): run.stat().st_mtime for run in self.path.parent.glob("*/config.toml")}
        near = difflib.get_close_matches(str(self.path), beside, n=1) or sorted(beside, key=lambda run: -beside[run])
        return UserError(sentence, f"a run folder, such as {near[0]}" if near else "rofl run digits --out DIR")

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
            "log_digest": checkpoint.log_digest,
        }
        atomic_write(self.checkpoint_path, serialize(_groups(checkpoint.server_state), facts))
        self.prune_best(None if best is None else best.round)

    def read_checkpoint(self) -> Checkpoint | None:
        """Return the newest checkpoint, or None if the run has not written one."""
        path = self.checkpoint_path
        try:
            groups, metadata = deserialize(read_regular(path, follow=False))
            facts = CheckpointFacts.model_validate(metadata)
            aux = groups["aux"] if "aux" in groups else groups["extra"]  # as 0.1 called it
            server_state = ServerState(groups["model"], aux, groups.get("kept", {}))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}).", "start the run again") from error
        except (ValueError, KeyError) as error:
            raise UserError(f"{path} is damaged ({_first_problem(error)}).", "start the run again") from error
        return Checkpoint(facts.round, server_state, facts.states, facts.pending_record, log_digest=facts.log_digest)

    def read_best(self, index: int) -> BestModel:
        """Return the model of the best round, which a checkpoint of a later one left.

        Raises:
            UserError: the file is missing or damaged.
        """
        path = self._best_path(index)
        try:
            groups, facts = deserialize(read_regular(path, follow=False))
            if facts["round"] != index:
                raise ValueError(f"it is of round {facts['round']}")
            return BestModel(index, ServerState(groups["model"], groups["aux"], groups.get("kept", {})))
        except (ValueError, KeyError, OSError) as error:
            raise UserError(f"{path} cannot be read ({error}).", "start the run again") from error

    def read_model(self, summary: RunSummary) -> ServerState:
        """Return the server state that a finished run saved: that of the best or of the last round.

        Raises:
            UserError: there is none, or its file is damaged.
        """
        last = self.read_checkpoint()
        if last is None:
            raise UserError(f"{self.path} has no checkpoint, so that its model is lost.", "run it again")
        saved = last.server_state.evaluated()
        if summary.selected_round not in (None, last.index):
            saved = self.read_best(summary.selected_round).server_state.evaluated()
        self._check_digest(saved, summary.selected_digest or summary.digest)
        return saved

    def check_summary(self, summary: RunSummary) -> None:
        """Check that the summary of a finished run is about the model in its checkpoint, where there is one.

        Raises:
            UserError: it is about another model.
        """
        last = self.read_checkpoint()
        if last is not None:
            self._check_digest(last.server_state.evaluated(), summary.digest)

    def _check_digest(self, server_state: ServerState, expected: str) -> None:
        if digest(server_state.model, server_state.aux) != expected:
            raise UserError(
                f"The model in {self.path} is not the one that its summary.json describes.",
                "a copy of both files as they were, or a new run",
            )

    def prune_best(self, keep: int | None) -> None:
        """Remove the models of rounds that were the best for a while."""
        for path in self.path.glob("best-*.safetensors"):
            if keep is None or path != self._best_path(keep):
                path.unlink(missing_ok=True)

    def write_good(self, models: Sequence[BestModel]) -> None:
        """Write the models of the last good rounds, to which a run can go back, and remove those of earlier ones."""
        wanted = {self.path / f"good-{model.round}.safetensors": model for model in models}
        for path, model in wanted.items():
            if not path.is_file():
                atomic_write(path, serialize(_groups(model.server_state), {"round": model.round}))
        for path in self.path.glob("good-*.safetensors"):
            if path not in wanted:
                path.unlink(missing_ok=True)

    def read_good(self) -> list[BestModel]:
        """Return the models of the last good rounds, in order; those whose files cannot be read are left out."""
        found = []
        for path in self.path.glob("good-*.safetensors"):
            try:
                groups, facts = deserialize(read_regular(path, follow=False))
                state = ServerState(groups["model"], groups.get("aux", {}), groups.get("kept", {}))
                found.append(BestModel(int(facts["round"]), state))
            except (ValueError, KeyError, TypeError, OSError):
                continue
        return sorted(found, key=lambda model: model.round)

    def _best_path(self, index: int) -> Path:
        return self.path / f"best-{index}.safetensors"

    def read_history(self) -> list[RoundRecord]:
        """Return a record per round; a last line that was cut short does not count.

        Raises:
            UserError: the file is damaged before its last line.
        """
        return read_round_log(self.log_path)

    def write_history(self, records: Iterable[RoundRecord]) -> None:
        """Write all records at once."""
        atomic_write(self.log_path, "".join(map(format_record, records)))

    def append_history(self, record: RoundRecord) -> None:
        """Add a round, flushed to disk: a checkpoint that survives a power cut must not be ahead of it."""
        append_text(self.log_path, format_record(record))

    def read_summary(self) -> RunSummary:
        """Return the outcome of a finished run."""
        path = self.path / "summary.json"
        if not path.is_file():
            raise UserError(f"{self.path} holds no finished run.", f"rofl resume {self.path}")
        try:
            return RunSummary.model_validate_json(read_regular(path, follow=False))
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}).", "a copy of it") from error
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
        """Return all clients' near-duplicates and outliers in one; none for runs of old versions."""
        paths = sorted((self.path / "issues").glob("*.csv"))
        return sort_issues(issue for path in paths for issue in read_issues(path))

    def write_audit_record(self, record: AuditRecord) -> None:
        """Write audit.json, which makes this the folder of an audit of new data."""
        atomic_write(self.path / "audit.json", record.to_json())

    def read_audit_record(self) -> AuditRecord | None:
        """Return what audit.json says, or None if this is not the folder of an audit of new data.

        Raises:
            UserError: the file is damaged.
        """
        path = self.path / "audit.json"
        if not path.is_file():
            return None
        try:
            return AuditRecord.model_validate_json(read_regular(path, follow=False))
        except (OSError, ValueError) as error:
            problem = f"{path} is damaged ({_first_problem(error)})."
            raise UserError(problem, "rofl audit --model RUN --data PATH again") from error

    def write_features(self, kept: Features) -> None:
        """Write the features of some samples."""
        centroids = {} if kept.centroids is None else {"centroids": kept.centroids}
        groups: dict[str, Tensors] = {"samples": {"rows": kept.rows, "features": kept.features}, "classes": centroids}
        atomic_write(self.path / "features.safetensors", serialize(groups, {}))

    def read_features(self) -> Features | None:
        """Return the features, or None if there are none that can be read: only the t-SNE picture needs them."""
        try:
            groups, _ = deserialize(read_regular(self.path / "features.safetensors", follow=False))
            kept = Features(**groups["samples"], centroids=groups.get("classes", {}).get("centroids"))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return kept if kept.is_sound else None

    def write_left_out(self, lines: Iterable[str]) -> None:
        """Write which files of the user's data could not be read; no file where all could."""
        text = "".join(f"{line}\n" for line in lines)
        if text:
            atomic_write(self.path / "left_out.txt", text)

    def write_encoder(self, encoder: Encoder | None) -> None:
        """Write the encoder of a user's table to encoder.json; no file for other data."""
        if encoder is not None:
            atomic_write(self.path / "encoder.json", encoder.to_json())

    def read_encoder(self) -> Encoder | None:
        """Return the encoder of the run's table, or None if it has none.

        Raises:
            UserError: the file is damaged.
        """
        text = _read_text(self.path / "encoder.json")
        return None if text is None else encoder_from_json(text)

    def write_noise(self, noise: LabelNoise | None) -> None:
        """Write noise.json: the label noise over all sites of a federation; no file where it is not known."""
        (self.path / "noise.json").unlink(missing_ok=True)
        if noise is not None:
            atomic_write(self.path / "noise.json", noise.to_json())

    def read_noise(self, classes: int) -> LabelNoise | None:
        """Return the label noise over all sites of a federation, or None where this run has no such estimate.

        Raises:
            UserError: the file is damaged, or of another number of classes.
        """
        path = self.path / "noise.json"
        text = _read_text(path)
        try:
            return None if text is None else LabelNoise.from_json(text, classes)
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}).", "a copy of it as it was") from error

    def write_evaluation(self, metrics: Classification) -> None:
        """Write evaluation.json: how good the saved model is on the test part."""
        atomic_write(self.path / "evaluation.json", _EVALUATION.dump_json(metrics, indent=1) + b"\n")

    def read_evaluation(self) -> Classification | None:
        """Return the saved model's figures on the test part, or None where there are none that can be read."""
        try:
            return _EVALUATION.validate_json(read_regular(self.path / "evaluation.json", follow=False))
        except (OSError, ValidationError):
            return None

    def write_client_names(self, names: Sequence[str]) -> None:
        """Write clients.json: the clients' names in the order of their numbers, for who watches the run."""
        if list(names) != [str(number) for number in range(len(names))]:
            atomic_write(self.path / "clients.json", _NAMES.dump_json(list(names)).decode())

    def read_client_names(self) -> list[str]:
        """Return the clients' names, or none where they have numbers only; what cannot be read counts as none."""
        try:
            return _NAMES.validate_json(read_regular(self.path / "clients.json", _MOST_NAMES, follow=False))
        except (OSError, ValidationError):
            return []

    def write_model_record(self, record: ModelRecord) -> None:
        """Write model.json: all that the saved model is, beside its weights."""
        atomic_write(self.path / "model.json", record.to_json())

    def read_model_record(self) -> ModelRecord | None:
        """Return what model.json says, or None if there is none, as in runs of old versions.

        Raises:
            UserError: the file is damaged.
        """
        path = self.path / "model.json"
        text = _read_text(path)
        return None if text is None else ModelRecord.from_json(text, str(path))

    @property
    def base_path(self) -> Path:
        """The file with the weights that stayed as they were, where only a part of the network was trained."""
        return self.path / "base.safetensors"

    def write_base(self, network: NetworkSpec) -> None:
        """Write the weights that stay as they are, so that the saved model needs no file from elsewhere."""
        if network.freeze or network.lora:
            entries = {name: value.contiguous() for name, value in backbone_entries(network.build_base()).items()}
            atomic_write(self.base_path, safetensors.torch.save(entries, {"format": "pt"}))

    def read_suspects(self) -> list[SuspectRow]:
        """Return all clients' lists in one, most suspicious first."""
        paths = sorted((self.path / "suspects").glob("*.csv"))
        return sort_suspects(row for path in paths for row in read_suspects(path))


def _groups(server_state: ServerState) -> dict[str, Tensors]:
    groups = {"model": server_state.model, "aux": server_state.aux}
    return {**groups, "kept": server_state.kept} if server_state.kept else groups


def _read_text(path: Path) -> str | None:
    """Return the text of a file, or None where there is none.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return read_regular(path, follow=False).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"{path} cannot be read ({reason}).", "a copy of it as it was") from error


def _first_problem(error: Exception) -> str:
    """One line about what is wrong with a file."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
