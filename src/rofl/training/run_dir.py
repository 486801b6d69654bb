"""The files of a run: settings, rounds, checkpoint, client states, summary, suspects, features.

metrics.jsonl, a line per round, is refused if it was changed: the best round and an early stop depend on it.
"""

import difflib
import hashlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rofl.config.overrides import read_toml
from rofl.config.schema import Experiment, parse_experiment
from rofl.data.atomic import append_text, atomic_write
from rofl.data.regular_file import read_regular
from rofl.errors import UserError
from rofl.training.audit_files import AuditFiles
from rofl.training.checkpoint_files import CheckpointFiles
from rofl.training.records import RoundRecord, RunSummary
from rofl.training.run_files import first_problem
from rofl.training.saved_model.model_files import ModelFiles

_NAMES = TypeAdapter(list[str])
_MOST_NAMES = 2**20  # bytes of clients.json
_LOG_HINT = "a copy of the file as it was, or a new run"


@dataclass(frozen=True)
class RunDir:
    """A run directory; docs/run-folder.md describes its files.

    Every file is written atomically; metrics.jsonl grows line by line. A damaged file raises a UserError that names it,
    unless the file is optional.
    """

    path: Path

    @property
    def checkpoints(self) -> CheckpointFiles:
        """Saved server states."""
        return CheckpointFiles(self.path)

    @property
    def audit(self) -> AuditFiles:
        """The files of the audit: suspects, other issues, features."""
        return AuditFiles(self.path)

    @property
    def model(self) -> ModelFiles:
        """The files of the saved model, except its checkpoint."""
        return ModelFiles(self.path)

    @property
    def states(self) -> Path:
        """The directory of client states."""
        return self.path / "states"

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
        """Return the settings of the run; names of 0.1 are accepted."""
        if not self.exists():
            raise self._no_run()
        settings = read_toml(self.path / "config.toml", follow=False)
        if not settings.keys() & {"method", "data", "rounds"}:  # other programs have a config.toml, too
            raise self._no_run(f"{self.path} is not a run folder: its config.toml is of another program.")
        return parse_experiment(settings)

    def _no_run(self, sentence: str = "") -> UserError:
        """Return the error for a folder without a run, with a neighbouring run as a hint."""
        if self.audit.is_unfinished:
            again = f"rofl audit --model RUN --data PATH --out {self.path}, with the same run and data"
            return UserError(f"The audit that wrote {self.path} was interrupted.", again)
        if not sentence:
            there = self.path.exists()
            sentence = (
                f"{self.path} is not a run folder: it has no config.toml." if there else f"There is no {self.path}."
            )
        runs = self.path.parent.glob(f"*/{self.log_path.name}")
        beside = {str(run.parent): run.stat().st_mtime for run in runs if RunDir(run.parent).exists()}
        near = difflib.get_close_matches(str(self.path), beside, n=1) or sorted(beside, key=lambda run: -beside[run])
        return UserError(sentence, f"a run folder, such as {near[0]}" if near else "rofl run digits --out DIR")

    def write_experiment(self, chosen: Experiment) -> None:
        """Write the settings."""
        atomic_write(self.path / "config.toml", chosen.toml())

    def read_history(self) -> list[RoundRecord]:
        """Return a record per round; a last line that was cut short when the run was killed is ignored.

        Raises:
            UserError: the file cannot be read, an earlier line is damaged, or a round is missing.
        """
        lines = _split_lines(_read_log(self.log_path))
        records: list[RoundRecord] = []
        for number, line in enumerate(lines, start=1):
            try:
                record = RoundRecord.model_validate_json(line)
            except ValidationError as error:
                if number == len(lines):
                    break
                raise UserError(f"Line {number} of {self.log_path} is damaged.", _LOG_HINT) from error
            if record.round != number:
                raise UserError(f"Line {number} of {self.log_path} is about round {record.round}.", _LOG_HINT)
            records.append(record)
        return records

    def write_history(self, records: Iterable[RoundRecord]) -> None:
        """Write all records at once."""
        atomic_write(self.log_path, "".join(map(format_record, records)))

    def append_history(self, record: RoundRecord) -> None:
        """Append a round and flush it to disk: a checkpoint that survives a power cut must not be ahead of it."""
        append_text(self.log_path, format_record(record))

    def read_summary(self) -> RunSummary:
        """Return the summary of a finished run."""
        path = self.path / "summary.json"
        if not path.is_file():
            raise UserError(f"{self.path} holds no finished run.", f"rofl resume {self.path}")
        try:
            return RunSummary.model_validate_json(read_regular(path, follow=False))
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}).", "a copy of it") from error
        except ValueError as error:
            problem = f"{path} is damaged ({first_problem(error)})."
            raise UserError(problem, f"delete it, then rofl resume {self.path}") from error

    def write_summary(self, summary: RunSummary) -> None:
        """Write the summary, which marks the run as finished."""
        atomic_write(self.path / "summary.json", summary.to_json())

    def write_left_out(self, lines: Iterable[str]) -> None:
        """Write left_out.txt: files of the user's data that could not be read; no file if there are none."""
        text = "".join(f"{line}\n" for line in lines)
        if text:
            atomic_write(self.path / "left_out.txt", text)

    def write_client_names(self, names: Sequence[str]) -> None:
        """Write clients.json: the clients' names in the order of their numbers, for messages and the live view."""
        if list(names) != [str(number) for number in range(len(names))]:
            atomic_write(self.path / "clients.json", _NAMES.dump_json(list(names)).decode())

    def read_client_names(self) -> list[str]:
        """Return the clients' names; empty if they have only numbers, or the file cannot be read."""
        try:
            return _NAMES.validate_json(read_regular(self.path / "clients.json", _MOST_NAMES, follow=False))
        except (OSError, ValidationError):
            return []


def cut_round_log(path: Path, kept: int, checked: int, digest: str) -> "hashlib._Hash":
    """Truncate the file after some lines, after a check that they are those of the checkpoint.

    Args:
        path: the file.
        kept: the number of lines to keep.
        checked: the number of lines that the checkpoint covers.
        digest: their SHA-256 in the checkpoint; "" in checkpoints of earlier versions.

    Returns:
        The SHA-256 of the kept lines, to be updated with later ones.

    Raises:
        UserError: lines are missing, or one was changed.
    """
    raw = _read_log(path)
    lines = _split_lines(raw)
    if kept < checked:
        raise UserError(f"{path} has {kept} rounds, and the checkpoint was written after {checked}.", _LOG_HINT)
    if digest not in ("", hashlib.sha256(_join_lines(lines[:checked])).hexdigest()):
        raise UserError(f"{path} was changed since the checkpoint was written.", _LOG_HINT)
    content = _join_lines(lines[:kept])
    if content != raw:
        atomic_write(path, content)
    return hashlib.sha256(content)


def format_record(record: RoundRecord) -> str:
    """Return the line of a round."""
    return record.model_dump_json() + "\n"


def _read_log(path: Path) -> bytes:
    try:
        return read_regular(path, follow=False)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).", _LOG_HINT) from error


def _split_lines(raw: bytes) -> list[bytes]:
    return raw.removesuffix(b"\n").split(b"\n") if raw else []


def _join_lines(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)
