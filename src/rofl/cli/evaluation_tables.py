"""An evaluation of a model for the terminal."""

from rich.table import Table
from rich.text import Text

from rofl.cli.tables import share_text
from rofl.data.user.names import plural
from rofl.training.saved_model.evaluate_data import ModelEvaluation

_CLASSES = 30  # that are listed; --json has all
_CONFUSIONS = 3


def class_table(evaluation: ModelEvaluation) -> Table:
    """Return precision, recall and F1 of each class; a class that is never predicted is in red."""
    metrics = evaluation.metrics
    table = Table(title="by class", title_justify="left")
    for name in ("class", "samples", "predicted", "precision", "recall", "F1"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for each in metrics.classes[:_CLASSES]:
        counts, shares = (each.support, each.predicted), (each.precision, each.recall, each.f1)
        missed = each.support > 0 and each.predicted == 0
        table.add_row(Text(each.name), *map(str, counts), *map(share_text, shares), style="red" if missed else None)
    if len(metrics.classes) > _CLASSES:
        table.add_row(f"and {len(metrics.classes) - _CLASSES} more")
    return table


def evaluation_lines(evaluation: ModelEvaluation) -> list[str]:
    """Return lines with the accuracy, the calibration, and the most frequent confusions."""
    metrics = evaluation.metrics
    given = ", against labels as given" if evaluation.as_given else ""
    lines = [
        f"accuracy: {metrics.accuracy:.2f} % of {metrics.samples} samples{given}",
        f"calibration error (ECE): {metrics.calibration_error:.3f}",
    ]
    names = [each.name for each in metrics.classes]
    pairs = sorted(
        (-count, place, other)
        for place, row in enumerate(metrics.confusion)
        for other, count in enumerate(row)
        if count and place != other
    )
    lines += [f"{names[i]} predicted as {names[j]}: {plural(-count, 'sample')}" for count, i, j in pairs[:_CONFUSIONS]]
    return lines
