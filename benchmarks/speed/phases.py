"""Measure how a client's time is spent: a bar per phase, as a table and as a picture.

The functions of a phase are wrapped while one client trains in this process. The time of a phase within another is
subtracted from the outer one.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.speed.result_table import Section
from benchmarks.speed.synthetic_images import synthetic_images, transform
from rofl.core import centroids, losses
from rofl.data import ClientDataset
from rofl.methods import Rofl, RoundContext, rofl
from rofl.methods.local_sgd import FusedSGD
from rofl.methods.pseudo_labels import PseudoLabels
from rofl.models import Network
from rofl.simulation.client import run_client
from rofl.simulation.network_spec import NetworkSpec

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "round.svg"
PSEUDO = "pseudo-labels (Eq. 8)"
REST = "the rest: shuffling, sums, copies of weights"
PHASES = {
    "backward pass": [(torch.Tensor, "backward")],
    "forward pass": [(Network, "forward")],
    PSEUDO: [(PseudoLabels, "__init__"), (PseudoLabels, "of")],
    "gather, crop, scale": [(ClientDataset, "inputs")],
    "centroids, mask (Eq. 3-7, 12, 13)": [(centroids, name) for name in ("class_means", "blend", "confident")],
    "losses (Eq. 1, 2, 5, 9)": [
        *((losses, name) for name in ("cross_entropy", "classification", "centroid", "entropy")),
        (rofl, "small_loss"),
    ],
    "SGD": [(FusedSGD, "step"), (FusedSGD, "zero_grad")],
}
CASES = {
    "cnn9 at 1/8, MNIST": ("cnn9", (1, 28, 28), 0.125, 500, 50),
    "small, digits": ("small", (1, 8, 8), 1.0, 72, 20),
}
ROUNDS = 5
COLOURS = ("#3b6ea5", "#7aa6d1", "#d9822b", "#8a8f98", "#5aa469", "#c9b458", "#9b6fb0", "#d5d8dc")


class Clock:
    """Seconds of each phase without the phases inside it; a forward pass inside pseudo-labels counts as theirs."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys([*PHASES, REST], 0.0)
        self._open = [REST]
        self._since = time.perf_counter()

    def start(self) -> None:
        """Start the clock again."""
        self._since = time.perf_counter()

    def change(self, name: str | None) -> None:
        """Enter a phase, or leave the innermost one if no name is given."""
        now = time.perf_counter()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now
        if name is None:
            self._open.pop()
        else:
            self._open.append(PSEUDO if self._open[-1] == PSEUDO else name)

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed as a phase."""

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.change(name)
            try:
                return function(*args, **kwargs)
            finally:
                self.change(None)

        return timed


@contextmanager
def watched() -> Iterator[Clock]:
    """Yield a clock that times the phases of the block."""
    clock, patches = Clock(), []
    for name, functions in PHASES.items():
        patches += [patch.object(owner, part, clock.around(name, getattr(owner, part))) for owner, part in functions]
    for each in patches:
        each.start()
    try:
        clock.start()
        yield clock
        clock.change(REST)
    finally:
        for each in patches:
            each.stop()


def spent(case: str) -> dict[str, float]:
    """Return the share of each phase in a client's last round, when training has converged."""
    model, shape, width, samples, batch = CASES[case]
    method = Rofl(tau=0.4, t_pl=1, cen_start=0.0, cen_rise=0.0, batch=batch)
    net = NetworkSpec(model, shape, 10, width, 0).build()
    pixels, labels = synthetic_images(shape, samples)
    data, server_state = ClientDataset(pixels, torch.arange(samples), labels, 10, transform(shape, 1)), method.init(net)
    for index in range(1, ROUNDS):
        update, _ = run_client(method, net, server_state, {}, data, RoundContext(index, 0, 0))
        server_state = method.server_update(server_state, update, RoundContext(index, 0))
    with watched() as clock:
        run_client(method, net, server_state, {}, data, RoundContext(ROUNDS, 0, 0))
    whole = sum(clock.seconds.values())
    return {name: seconds / whole for name, seconds in clock.seconds.items()}


def draw(shares: dict[str, dict[str, float]]) -> str:
    """Return a bar for each case, with a legend, as SVG."""
    width, parts = 760, []
    for row, (case, phases) in enumerate(shares.items()):
        left, top = 160.0, 20 + 44 * row
        parts.append(f'<text x="150" y="{top + 20}" text-anchor="end">{case}</text>')
        for (name, share), colour in zip(phases.items(), COLOURS, strict=True):
            size = share * (width - 180)
            parts.append(
                f'<rect x="{left:.1f}" y="{top}" width="{size:.1f}" height="30" fill="{colour}">'
                f"<title>{name}: {100 * share:.1f} %</title></rect>"
            )
            left += size
    top = 30 + 44 * len(shares)
    for place, (name, colour) in enumerate(zip(next(iter(shares.values())), COLOURS, strict=True)):
        x, y = 160 + 290 * (place % 2), top + 22 * (place // 2)
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 11}">{name}</text>')
    height = top + 22 * (len(COLOURS) + 1) // 2 + 20
    style = "<style>text{font:12px sans-serif;fill:#777}</style>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join([head, style, *parts, "</svg>"]) + "\n"


def measure() -> Section:
    """Return the section of both cases; the picture is written to docs."""
    shares = {case: spent(case) for case in CASES}
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(shares))
    rows = [[name, *(f"{100 * phases[name]:.1f} %" for phases in shares.values())] for name in [*PHASES, REST]]
    how = "One client's round of rofl at its full cost, on one thread; shares of its time (`docs/images/round.svg`)."
    return Section("How a client's time is spent", how, ("phase", *CASES), rows, [])


if __name__ == "__main__":
    print(measure().markdown())
