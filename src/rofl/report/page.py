"""The page: run folders in, one HTML file out that needs nothing but itself."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rofl import atomic
from rofl.errors import UserError
from rofl.report import charts, figures
from rofl.report.clients import client_table
from rofl.report.document import document
from rofl.report.gallery import gallery, most_suspicious
from rofl.report.provenance import provenance
from rofl.report.runs import FinishedRun, grouped, is_flagged, read_all
from rofl.report.words import count
from rofl.scene import Scene, prepare


def write(folders: Sequence[Path], out: Path, data_dir: Path | None = None) -> Path:
    """Turn finished runs into one self-contained HTML page.

    Clients, suspects and pictures are those of the main run: the first whose method has centroids, else the first.

    Args:
        folders: run folders; runs that differ only by seed are put together.
        out: the file to write.
        data_dir: where the data sets lie, for the pictures; $ROFL_DATA where absent.

    Returns:
        The file.

    Raises:
        UserError: a folder holds no finished run, or the page cannot be written.
    """
    page = _page(read_all([Path(folder) for folder in folders]), data_dir)
    try:
        atomic.write(Path(out), page)
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror}).", "another file name") from error
    return Path(out)


def _page(runs: Sequence[FinishedRun], data_dir: Path | None) -> str:
    groups = grouped(runs)
    main = groups[0].runs[0]
    suspects = main.folder.read_suspects()
    shown = most_suspicious(suspects)
    scene, trouble = _scene(main, data_dir) if shown else (None, "")
    return document(
        "page.html",
        figures.title(runs),
        charts.accuracy_script(groups),
        facts=figures.facts(runs),
        accuracies=figures.accuracies(groups),
        main=escape(groups[0].label),
        tiles=figures.tiles(groups[0]),
        comparison=figures.comparison(groups),
        chart_id=charts.CHART_ID,
        judge=escape(f"{groups[0].label} (seed {main.experiment.seed})"),
        clients=client_table(suspects),
        suspects_note=_suspects_note(len(shown), sum(map(is_flagged, suspects)), main, trouble),
        gallery=gallery(shown, scene, _truth_known(main)),
        provenance=provenance([run for group in groups for run in group.runs]),
    )


def _scene(run: FinishedRun, data_dir: Path | None) -> tuple[Scene | None, str]:
    """The images again; a page without pictures is still worth having where the data are not at hand."""
    try:
        return prepare(run.experiment, data_dir), ""
    except UserError as error:
        return None, error.sentence


def _truth_known(run: FinishedRun) -> bool:
    """Where no noise was put on, given and true labels are the same by construction, and say nothing."""
    noise = run.experiment.noise
    return run.summary.get("detection") is not None and (noise.expected_ratio > 0 or noise.per_client)


def _suspects_note(shown: int, flagged: int, run: FinishedRun, trouble: str) -> str:
    """The sentence above the pictures."""
    if not shown:
        return "No label was flagged."
    sentences = [
        f"The {count(shown)} most suspicious of {count(flagged)} flagged labels, most suspicious first:"
        " the given label, then the model's suggestion. A score of 1 means surely wrong."
    ]
    if trouble:
        sentences.append(f"The pictures are missing: {escape(trouble)}")
    elif _truth_known(run):
        sentences.append(
            "In this experiment the truth is known, so each carries a mark: ✓ if the label is really wrong."
        )
    return " ".join(sentences)
