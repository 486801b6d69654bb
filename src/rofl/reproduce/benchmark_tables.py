"""The methods, noise settings and names of the benchmarks.

A benchmark is a table whose rows are methods and whose columns are settings.
"""

from collections.abc import Iterable, Mapping

from rofl.core.settings import Settings
from rofl.errors import unknown
from rofl.methods import METHODS
from rofl.reproduce.paper_table import PaperTable, TableCell, noise_settings

_ALL_NOISY: Settings = {"noise.kind": "redraw", "noise.client_min": 0.5, "noise.client_max": 1.0}  # rho 1, tau .5
_SKEWED: Settings = {"data.partition": "dirichlet", "data.alpha": 0.3}

NOISE: Mapping[str, Settings] = {
    "clean": noise_settings("symmetric", 0.0),
    **{f"symmetric {ratio:g}": noise_settings("symmetric", ratio) for ratio in (0.2, 0.4, 0.6)},
    **{f"pair {ratio:g}": noise_settings("pair", ratio) for ratio in (0.2, 0.45)},
    "instance 0.4": noise_settings("instance", 0.4),
}
CLIENTS: Mapping[str, Settings] = {
    "rho 1 tau 0.5": _ALL_NOISY,
    "rho 1 tau 0.5 Dirichlet 0.3": {**_ALL_NOISY, **_SKEWED},
    "symmetric 0.4 Dirichlet 0.3": {**noise_settings("symmetric", 0.4), **_SKEWED},
}
HUMAN: Mapping[str, Settings] = {"CIFAR-10N worse": {"noise.kind": "human", "noise.labels": "worse"}}
BENCHMARKS = {
    "noise": "the same noise at all clients: none, symmetric, pair, instance-dependent, and people's on CIFAR-10",
    "clients": "noise or classes that differ between clients: FedCorr's rho 1 and tau 0.5, and Dirichlet 0.3",
    "all": "all settings of both",
}

# Rows that are variants of a method; every other row is the method of that name.
_VARIANTS: Mapping[str, tuple[str, Settings]] = {
    "plain+gce": ("plain", {"method.loss": "gce"}),
    "plain+sce": ("plain", {"method.loss": "sce"}),
    "plain+elr": ("plain", {"method.loss": "elr"}),
    "plain+mixup": ("plain", {"method.mixup": 1.0}),
    "fedfixer-1": ("fedfixer", {"method.inner_steps": 1}),
}


def benchmark_settings(name: str, data: str) -> dict[str, Settings]:
    """Return the settings of a benchmark by their names.

    Args:
        name: A key of `BENCHMARKS`.
        data: The data set; only "cifar10" has human labels.

    Raises:
        UserError: There is no such benchmark.
    """
    if name not in BENCHMARKS:
        raise unknown("benchmark", name, BENCHMARKS)
    human = HUMAN if data == "cifar10" else {}
    noise = {**NOISE, **human} if name in ("noise", "all") else {}
    return {**noise, **(CLIENTS if name in ("clients", "all") else {})}


def benchmark_rows() -> list[str]:
    """Return the methods of a benchmark: all built-in ones, the losses of plain, and FedFixer with one step."""
    rows: list[str] = []
    for name in METHODS:
        rows += [name, *(row for row, (method, _) in _VARIANTS.items() if method == name)]
    return rows


def benchmark_table(name: str, data: str, rows: Iterable[str], settings: Mapping[str, Settings]) -> PaperTable:
    """Return a benchmark as a table.

    Args:
        name: The name of the benchmark.
        data: The data set.
        rows: Rows of `benchmark_rows`, or methods such as "package.module:Class".
        settings: The columns.
    """
    cells = []
    for row in rows:
        method, own = _VARIANTS.get(row, (row, {}))
        METHODS.find(method)  # refuses a wrong name before anything runs
        cells += [TableCell(row, column, method, {**changes, **own}) for column, changes in settings.items()]
    return PaperTable(name, "benchmark", BENCHMARKS[name], data, tuple(cells), across="setting")
