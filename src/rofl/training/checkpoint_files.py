"""The server states that a run saves: the newest, that of the best round, and those for a rollback."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import Tensors, digest
from rofl.data.atomic import atomic_write
from rofl.data.regular_file import read_regular
from rofl.errors import UserError
from rofl.methods.base import ServerState
from rofl.training.records import CheckpointFacts, RoundRecord, RunSummary
from rofl.training.run_files import first_problem


@dataclass(frozen=True)
class BestModel:
    """The server state of the best round so far."""

    round: int
    server_state: ServerState


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a round; a resume continues from it with the same bits."""

    index: int  # the last finished round
    server_state: ServerState
    states: dict[int, int]  # client -> round of its state
    pending_record: RoundRecord | None = None  # of the last round, if its accuracy is still to come
    best: BestModel | None = None  # written to its own file, unless it is that of this round
    log_digest: str = ""  # SHA-256 of the lines in metrics.jsonl at that time; "" in checkpoints of earlier versions


@dataclass(frozen=True)
class CheckpointFiles:
    """The checkpoints in a run folder."""

    path: Path

    @property
    def newest_path(self) -> Path:
        """The file of the newest checkpoint."""
        return self.path / "checkpoint.safetensors"

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint as one file, so that weights and round always agree; the best model is written first."""
        best = checkpoint.best
        if best is not None and best.round != checkpoint.index and not self._best_path(best.round).is_file():
            _write_model(self._best_path(best.round), best)
        states = {str(client): index for client, index in checkpoint.states.items()}
        pending = checkpoint.pending_record
        facts = {
            "round": checkpoint.index,
            "states": states,
            "pending_record": None if pending is None else pending.model_dump(),
            "log_digest": checkpoint.log_digest,
        }
        atomic_write(self.newest_path, serialize(_groups(checkpoint.server_state), facts))
        self.prune_best(None if best is None else best.round)

    def read(self) -> Checkpoint | None:
        """Return the newest checkpoint, or None if the run has not written one."""
        path = self.newest_path
        try:
            groups, metadata = deserialize(read_regular(path, follow=False))
            facts = CheckpointFacts.model_validate(metadata)
            server_state = _server_state(groups)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}).", "start the run again") from error
        except (ValueError, KeyError) as error:
            raise UserError(f"{path} is damaged ({first_problem(error)}).", "start the run again") from error
        return Checkpoint(facts.round, server_state, facts.states, facts.pending_record, log_digest=facts.log_digest)

    def read_best(self, index: int) -> BestModel:
        """Return the model of the best round that a checkpoint refers to.

        Raises:
            UserError: the file is missing or damaged.
        """
        path = self._best_path(index)
        try:
            best = _read_model(path)
            if best.round != index:
                raise ValueError(f"it is of round {best.round}")
            return best
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise UserError(f"{path} cannot be read ({error}).", "start the run again") from error

    def read_saved_model(self, summary: RunSummary) -> ServerState:
        """Return the server state that a finished run saved, of the best or the last round.

        Raises:
            UserError: the file is missing or damaged.
        """
        last = self.read()
        if last is None:
            raise UserError(f"{self.path} has no checkpoint, so its model is lost.", "run it again")
        saved = last.server_state.evaluated()
        if summary.selected_round not in (None, last.index):
            saved = self.read_best(summary.selected_round).server_state.evaluated()
        self._check_digest(saved, summary.selected_digest or summary.digest)
        return saved

    def check_summary(self, summary: RunSummary) -> None:
        """Check that the summary of a finished run matches the model in its checkpoint, if there is one.

        Raises:
            UserError: it describes another model.
        """
        last = self.read()
        if last is not None:
            self._check_digest(last.server_state.evaluated(), summary.digest)

    def _check_digest(self, server_state: ServerState, expected: str) -> None:
        if digest(server_state.model, server_state.aux) != expected:
            raise UserError(
                f"The model in {self.path} is not the one that its summary.json describes.",
                "a copy of both files as they were, or a new run",
            )

    def prune_best(self, keep: int | None) -> None:
        """Remove the models of rounds that are no longer the best."""
        for path in self.path.glob("best-*.safetensors"):
            if keep is None or path != self._best_path(keep):
                path.unlink(missing_ok=True)

    def write_good(self, models: Sequence[BestModel]) -> None:
        """Write the models of the last good rounds, for a rollback, and remove those of earlier rounds."""
        wanted = {self.path / f"good-{model.round}.safetensors": model for model in models}
        for path, model in wanted.items():
            if not path.is_file():
                _write_model(path, model)
        for path in self.path.glob("good-*.safetensors"):
            if path not in wanted:
                path.unlink(missing_ok=True)

    def read_good(self) -> list[BestModel]:
        """Return the models of the last good rounds, in order; unreadable files are left out."""
        found = []
        for path in self.path.glob("good-*.safetensors"):
            try:
                found.append(_read_model(path))
            except (ValueError, KeyError, TypeError, OSError):
                continue
        return sorted(found, key=lambda model: model.round)

    def _best_path(self, index: int) -> Path:
        return self.path / f"best-{index}.safetensors"


def _write_model(path: Path, model: BestModel) -> None:
    atomic_write(path, serialize(_groups(model.server_state), {"round": model.round}))


def _read_model(path: Path) -> BestModel:
    groups, facts = deserialize(read_regular(path, follow=False))
    return BestModel(int(facts["round"]), _server_state(groups))


def _server_state(groups: Mapping[str, Tensors]) -> ServerState:
    aux = groups["aux"] if "aux" in groups else groups["extra"]  # its name in 0.1
    return ServerState(groups["model"], aux, groups.get("kept", {}))


def _groups(server_state: ServerState) -> dict[str, Tensors]:
    groups = {"model": server_state.model, "aux": server_state.aux}
    return {**groups, "kept": server_state.kept} if server_state.kept else groups
