"""The model card in Markdown: the model, its training data, its metrics and its limits."""

import re
from collections.abc import Iterable, Sequence
from statistics import median

from rofl.config.schema import Experiment
from rofl.core.classification import Classification
from rofl.data.preprocessing import ImagePreprocessing, TextPreprocessing
from rofl.training.records import RunSummary
from rofl.training.run_dir import RunDir
from rofl.training.saved_model.model_files import ModelRecord

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~$-])")  # characters with a meaning in Markdown or HTML


def model_card(folder: RunDir, record: ModelRecord, name_sites: bool = False) -> str:
    """Return the model card of a finished run, in Markdown.

    Args:
        folder: the run directory.
        record: the record of its model.
        name_sites: whether to name each client with its share of flagged labels; otherwise only ranges are given.
    """
    experiment, summary, metrics = folder.read_experiment(), folder.read_summary(), folder.model.read_evaluation()
    parts = [
        f"# {_text(summary.name)}: {len(record.classes)} classes",
        "A classifier that was trained by federated learning with labels of which some may be wrong.",
        _table(("", ""), _facts(experiment, summary, record)),
        "## Input",
        _input(record),
        "## Classes",
        ", ".join(f"{place}: {_text(name)}" for place, name in enumerate(record.classes)),
        "## Data and labels",
        "\n".join(f"- {line}" for line in _data_lines(experiment, summary)),
        *(_sites(summary) if name_sites else []),
        "## Privacy",
        _privacy(summary),
        "## How good it is",
        *_metrics(experiment, summary, metrics),
        *_warnings(summary),
        "## Limits",
        "It knows the classes above and no others: every input gets one of them. Its figures are those of its own test "
        "data; test it on yours before you rely on it (`rofl evaluate RUN PATH`).",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(experiment: Experiment, summary: RunSummary, record: ModelRecord) -> list[tuple[str, str]]:
    versions = ", ".join(f"{name} {number}" for name, number in summary.versions.items())
    selected = "" if summary.selected_round is None else f", round {summary.selected_round} ({summary.selected})"
    return [
        ("network", f"{_text(record.network.name)}, width {record.network.width:g}"),
        ("method", f"{_text(summary.method)}, {summary.rounds_run or summary.rounds} rounds{selected}"),
        ("seed", str(experiment.seed)),
        ("SHA-256 of the weights", f"`{record.digest}`"),
        ("SHA-256 of the last server state", f"`{summary.digest}`"),
        ("versions", _text(versions)),
    ]


def _input(record: ModelRecord) -> str:
    form = record.preprocessing
    if isinstance(form, ImagePreprocessing):
        colours = "grey" if form.channels == 1 else "RGB"
        window = f", of which the middle {form.window} x {form.window} count" if form.window else ""
        return (
            f"Images of {form.height} x {form.width} pixels{window}, {colours}, 0 to 255. Scaling is part of the "
            f"model: mean {list(form.mean)}, standard deviation {list(form.std)} of pixels from 0 to 1."
        )
    if isinstance(form, TextPreprocessing):
        return (
            f"Texts, of which the first {form.encoder.length} words count; a word becomes a number by hashing (CRC-32)."
        )
    if form.encoder is None:
        return f"Rows of {form.features} numbers, as they are."
    columns = ", ".join(_text(column.name) for column in form.encoder.used)
    return f"Rows with the columns {columns}; numbers are standardised and categories one-hot inside of the model."


def _data_lines(experiment: Experiment, summary: RunSummary) -> list[str]:
    lines = [f"data: {_text(experiment.data.title)}, {experiment.clients} clients, {experiment.cohort} a round"]
    if summary.noise.achieved is not None:
        lines.append(f"labels made wrong for an experiment: {_share(summary.noise.achieved)}")
    if summary.estimated is not None:
        lines.append(f"labels that look wrong to the model: {_share(summary.estimated.ratio)}")
        shares = list(summary.estimated.clients.values())
        if shares:  # they are only known over all sites if sums were masked
            lines.append(
                f"at single clients: {_share(min(shares))} to {_share(max(shares))}, median {_share(median(shares))}"
            )
        if summary.estimated.expected_ratio is not None:
            unsure = summary.estimated.is_unsure
            share = (
                "not known, the model is unsure of most samples" if unsure else _share(summary.estimated.expected_ratio)
            )
            lines.append(f"labels expected to be wrong, by the scores: {share}")
    if summary.sites:
        lines.append(f"samples at the sites: {sum(site.samples for site in summary.sites.values())}")
    if summary.dropped:
        lines.append(f"clients left out of a round, over all rounds: {summary.dropped}")
    return lines


def _sites(summary: RunSummary) -> list[str]:
    if summary.sites:
        rows = [
            (
                _text(name),
                str(site.samples),
                "only known over all sites" if site.flagged is None else _share(site.flagged / max(site.samples, 1)),
            )
            for name, site in summary.sites.items()
        ]
        return [_table(("site", "samples", "labels that look wrong"), rows)]
    clients = summary.estimated.clients if summary.estimated else {}
    return [
        _table(("client", "labels that look wrong"), [(_text(name), _share(share)) for name, share in clients.items()])
    ]


def _privacy(summary: RunSummary) -> str:
    spent = summary.privacy
    if spent is None:
        return (
            "No differential privacy. Samples stayed with their clients; what a model has learnt can still reveal "
            "something about them."
        )
    if spent.epsilon is None:
        return f"Updates were clipped to {spent.clip:g}; this run knows of no guarantee of differential privacy."
    return (
        f"Differential privacy for clients: epsilon {spent.epsilon:.3g} at delta {spent.delta:g} (clip {spent.clip:g}, "
        f"noise {spent.noise:g})."
    )


def _metrics(experiment: Experiment, summary: RunSummary, metrics: Classification | None) -> list[str]:
    given = " Labels are as given: some may be wrong." if experiment.data.is_user_data else ""
    if metrics is None:
        known = (
            "It was not measured here."
            if summary.model_accuracy is None
            else f"Accuracy {summary.model_accuracy:.2f} %."
        )
        return [f"{known}{given}"]
    rows = [
        (_text(each.name), str(each.support), *(_share(value) for value in (each.precision, each.recall, each.f1)))
        for each in metrics.classes
    ]
    return [
        f"Accuracy {metrics.accuracy:.2f} % of {metrics.samples} test samples, calibration error (ECE) "
        f"{metrics.calibration_error:.3f}.{given}",
        _table(("class", "samples", "precision", "recall", "F1"), rows),
    ]


def _warnings(summary: RunSummary) -> list[str]:
    lines = [f"- {_text(event.message)}" for event in summary.warnings]
    return ["## Warnings", "\n".join(lines)] if lines else []


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _text(name: str) -> str:
    """Return a name escaped for Markdown, on one line: a class may be called `<script>` or `a | b`."""
    return _SPECIAL.sub(r"\\\1", " ".join(name.split()))
