"""The paper's figures as tables of numbers, most of which the paper does not print."""

from rofl.reproduce.paper_table import PaperTable, ScaledBy, TableCell, noise_settings
from rofl.reproduce.paper_tables import METHOD_NAMES, SETTINGS, USUAL


def _hyperparameter(name: str, row: str, values: tuple[float, ...]) -> list[TableCell]:
    """Return the cells of one hyper-parameter of the method at several values, the others as usual."""
    same_run = {("tau", USUAL["noise.ratio"]): "known"}  # so that other tables share the run
    settings = {f"{value:g}": same_run.get((name, value), value) for value in values}
    return [TableCell(row, text, changes={**USUAL, f"method.{name}": value}) for text, value in settings.items()]


def _t_pl(values: tuple[float, ...]) -> list[TableCell]:
    """Return the cells of T_pl at several multiples of its usual value."""
    return [TableCell("T_pl", f"x {value:g}", changes={**USUAL, "method.t_pl": ScaledBy(value)}) for value in values]


FIGURES = (
    PaperTable(
        "fig1",
        "Figure 1",
        "methods in the centralized (C. L.) and the federated (F. L.) setting at several noise ratios",
        "cifar10",
        tuple(
            TableCell(
                f"{METHOD_NAMES[name]} ({short})",
                f"{ratio:g}",
                name,
                {**noise_settings("symmetric", ratio), **setting},
                number,
            )
            for name, federated in {
                "plain": (89.5, 73.1, 54.8, 35.4),
                "coteaching": (89.8, 87.6, 84.4, 57.7),
                "joint": (88.4, 85.4, 80.1, 71.2),
                "rofl": (91.5, 90.8, 88.7, 83.0),
            }.items()
            for short, setting in SETTINGS.items()
            for ratio, number in zip((0.0, 0.2, 0.4, 0.6), federated if short == "F. L." else [None] * 4, strict=True)
        ),
        across="symmetric noise",
        note="The federated numbers of the paper are those of its Table 1; the centralized ones are only plotted.",
    ),
    PaperTable(
        "fig-tsne",
        "Figure 4",
        "divergence of clients' features and weights, with and without global centroids, at symmetric 0.4",
        "cifar10",
        tuple(
            TableCell(label, measure, changes={**USUAL, "method.global_centroids": used}, measure=measure)
            for label, used in (("without global centroids", False), ("with global centroids", True))
            for measure in ("features apart", "weights apart", "accuracy")
        ),
        corner="",
        note="The paper shows a t-SNE plot; the page draws it, and the two measures quantify it.",
    ),
    PaperTable(
        "fig-hyperparameters",
        "Supplement, last figure",
        "each hyper-parameter at several values, the others as usual, at symmetric 0.4",
        "cifar10",
        (
            *_t_pl((0.1, 0.5, 1.0, 1.5, 2.0)),
            *_hyperparameter("lambda_e", "lambda_e", (0.0, 0.4, 0.8, 1.2, 1.6)),
            *_hyperparameter("lambda_cen", "lambda_cen", (0.0, 0.5, 1.0, 1.5, 2.0)),
            *_hyperparameter("tau", "tau", (0.2, 0.3, 0.4, 0.5, 0.6)),
            *_hyperparameter("warmup", "T", (1, 5, 10, 15, 20)),
        ),
        corner="hyper-parameter",
        across="value",
        note="The paper prints no values for this figure; these are ours. T_pl is a multiple of the usual one.",
    ),
)
