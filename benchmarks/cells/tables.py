"""Tables of finished cells, in Markdown."""

from collections.abc import Iterable
from statistics import fmean, stdev

from benchmarks.cells.record import Cell

METHODS = ("plain", "coteaching", "joint", "rofl", "rofl-plus")  # the order of the rows; others follow
_STEPS = (40, 50, 60, 70, 80)  # per cent, of the table of times


def accuracy_table(cells: Iterable[Cell]) -> str:
    """Return the accuracy of each method at each noise: mean of the last ten rounds, and in brackets the best round."""
    chosen = list(cells)
    noises = sorted({cell.noise for cell in chosen}, key=_noise_order)
    lines = [["method", *noises]]
    for method in _methods(chosen):
        row = [method]
        for noise in noises:
            same = [cell for cell in chosen if (cell.label, cell.noise) == (method, noise)]
            best = f" ({fmean(cell.best[1] for cell in same):.1f})" if same else ""
            row.append(_spread([cell.accuracy for cell in same]) + best)
        lines.append(row)
    return _markdown(lines)


def cell_table(cells: Iterable[Cell]) -> str:
    """Return one line for each cell: seed, accuracy, detection, time and digest."""
    header = ["method, noise, seed", "last 10", "best (round)", "precision / recall"]
    header += ["seconds", "core seconds", "digest"]
    lines = [header]
    for cell in sorted(cells, key=lambda each: (_noise_order(each.noise), _order(each.label), each.seed)):
        found = "-" if cell.precision is None or cell.recall is None else f"{cell.precision:.3f} / {cell.recall:.3f}"
        seconds = [f"{cell.seconds:.0f}, workers: {cell.workers}", f"{cell.core_seconds:.0f}"]
        best = f"{cell.best[1]:.1f} ({cell.best[0]})"
        name = f"{cell.label}, {cell.noise}, {cell.seed}"
        lines.append([name, f"{cell.accuracy:.1f}", best, found, *seconds, cell.digest[:16]])
    return _markdown(lines)


def time_table(cells: Iterable[Cell]) -> str:
    """Return core seconds until a method first has some accuracy, in the order of the methods; one noise only."""
    chosen = list(cells)
    lines = [["method", *(f"{step} %" for step in _STEPS)]]
    for method in _methods(chosen):
        same = [cell for cell in chosen if cell.label == method]
        lines.append([method, *(_time_to(same, step) for step in _STEPS)])
    return _markdown(lines)


def _time_to(cells: list[Cell], step: float) -> str:
    times = []
    for cell in cells:
        reached = [index for index, accuracy in cell.history if accuracy >= step]
        if not reached:
            return "-"
        times.append(cell.core_seconds * reached[0] / cell.history[-1][0])
    return f"{fmean(times):.0f}"


def _methods(cells: Iterable[Cell]) -> list[str]:
    return sorted({cell.label for cell in cells}, key=_order)


def _order(method: str) -> tuple[int, str]:
    name = method.partition(",")[0]
    return (METHODS.index(name) if name in METHODS else len(METHODS), method)


def _noise_order(noise: str) -> tuple[bool, str]:
    return (not noise.startswith("symmetric"), noise)


def _spread(values: list[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{fmean(values):.1f}{spread}"


def _markdown(lines: list[list[str]]) -> str:
    rows = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([rows[0], "|" + "---|" * len(lines[0]), *rows[1:]])
