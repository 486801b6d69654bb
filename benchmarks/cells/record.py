"""The record of one finished run: what was run, what came out, where, and how long it took."""

from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from rofl.data.atomic import atomic_write
from rofl.errors import UserError
from rofl.training.records import LAST_ROUNDS
from rofl.training.runner import Run

FOLDER = Path("benchmarks/records/cells")


class Cell(BaseModel):
    """A finished run; all accuracies are on the test images, in per cent.

    Attributes:
        preset: The preset.
        noise: Kind and ratio, such as "symmetric 0.4".
        method: The method.
        variant: Settings that differ from the preset's, such as "T_pl 29"; "" where none does.
        seed: The seed.
        command: That repeats it.
        settings: All settings of the run, as TOML.
        history: Round and accuracy of each round that was evaluated.
        precision: Of the labels that look wrong to the final model; None where none is wrong.
        recall: The same.
        digest: SHA-256 of the final server state.
        seconds: From the first round to the last.
        core_seconds: CPU time of all processes.
        workers: Client processes.
        machine: The processor, the number of cores, and what else ran.
        versions: Of rofl and torch.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: str
    noise: str
    method: str
    variant: str = ""
    seed: int
    command: str
    settings: str
    history: list[tuple[int, float]]
    precision: float | None
    recall: float | None
    digest: str
    seconds: float
    core_seconds: float
    workers: int
    machine: str
    versions: dict[str, str]

    @property
    def name(self) -> str:
        """The name of the record's file."""
        parts = [self.preset, self.noise, self.method, *([self.variant] if self.variant else []), str(self.seed)]
        return "-".join(parts).replace(" ", "-")

    @property
    def label(self) -> str:
        """The method, and what differs from the preset, for tables."""
        return f"{self.method}, {self.variant}" if self.variant else self.method

    @property
    def accuracy(self) -> float:
        """The mean of the last ten rounds, as in the paper's tables."""
        last = self.history[-1][0]
        return fmean(accuracy for index, accuracy in self.history if index > last - LAST_ROUNDS)

    @property
    def best(self) -> tuple[int, float]:
        """The best round and its accuracy, by the test labels: no user could choose it."""
        return max(self.history, key=lambda entry: entry[1])


def cell_of(run: Run, noise: str, command: str, core_seconds: float, workers: int, machine: str) -> Cell:
    """Return the record of a finished run.

    Args:
        run: The run.
        noise: Kind and ratio.
        command: That repeats it.
        core_seconds: CPU time of all processes.
        workers: Client processes.
        machine: The processor, the number of cores, and what else ran.
    """
    summary = run.summary
    detection = summary.detection
    return Cell(
        preset=summary.name,
        noise=noise,
        method=summary.method,
        seed=summary.seed,
        command=command,
        settings=run.experiment.toml(),
        history=[(entry.round, round(entry.accuracy, 2)) for entry in run.history if entry.accuracy is not None],
        precision=detection.precision if detection else None,
        recall=detection.recall if detection else None,
        digest=summary.digest,
        seconds=round(summary.seconds, 1),
        core_seconds=round(core_seconds, 1),
        workers=workers,
        machine=machine,
        versions=dict(summary.versions),
    )


def write_cell(cell: Cell, folder: Path = FOLDER) -> Path:
    """Write a record, and return its path."""
    path = folder / f"{cell.name}.json"
    atomic_write(path, cell.model_dump_json(indent=1) + "\n")
    return path


def read_cells(folder: Path = FOLDER) -> list[Cell]:
    """Return all records, by name.

    Raises:
        UserError: A file is no record.
    """
    cells = []
    for path in sorted(folder.glob("*.json")):
        try:
            cells.append(Cell.model_validate_json(path.read_text()))
        except ValueError as error:
            raise UserError(f"{path} is no record of a cell ({type(error).__name__}).") from error
    return cells
