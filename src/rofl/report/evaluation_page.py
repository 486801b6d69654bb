"""The HTML page of `rofl evaluate`: accuracy, per-class metrics, confusions and calibration of a model."""

from pathlib import Path

from rofl.data.atomic import atomic_write
from rofl.errors import UserError
from rofl.report.environment import render_document
from rofl.report.formatting import count, per_cent, share
from rofl.report.sections.class_metrics import class_metrics, confusion_map
from rofl.report.sections.reliability_chart import reliability_chart
from rofl.training.saved_model.evaluate_data import ModelEvaluation


def write_evaluation_page(evaluation: ModelEvaluation, out: str | Path) -> Path:
    """Write an evaluation as one self-contained HTML page and return its path.

    The page neither names nor shows samples.

    Raises:
        UserError: the page cannot be written.
    """
    metrics, path = evaluation.metrics, Path(out)
    facts = {
        "Samples": count(metrics.samples),
        "Labels": "as given, some may be wrong" if evaluation.as_given else "the true ones",
        "Calibration error (ECE)": share(metrics.calibration_error),
        "Run": evaluation.run,
        "Data": evaluation.data,
    }
    sections = [class_metrics(metrics), confusion_map(metrics), reliability_chart(metrics)]
    page = render_document(
        "page.html.j2",
        f"{per_cent(metrics.accuracy)} accuracy",
        sections,
        eyebrow="rofl evaluate",
        run_facts=facts,
        contents="This page holds no picture and names no sample.",
    )
    try:
        atomic_write(path, page)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}).", "another file name") from error
    return path
