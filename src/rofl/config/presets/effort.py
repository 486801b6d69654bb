"""The size of a run on user images: the largest network, epochs and rounds that fit a time budget on two cores.

The choice depends on the data alone, not on the machine, so that the same data gives the same settings everywhere.
`rofl.training.time_estimate` then estimates the time on the machine at hand.
"""

from dataclasses import dataclass
from typing import Any, Literal

from rofl.data.user.source import MOST_PIXELS

Effort = Literal["quick", "default", "thorough"]

_MINUTES: dict[Effort, float] = {"quick": 3, "default": 10}  # time budget on two cores
_CORES = 2
# Seconds of a training step by its images, rofl on one core of an Intel Xeon at 2 to 3 GHz: by width at 32 x 32 pixels,
# and proportional to the pixels.
_CNN9 = {0.25: 7.6e-3, 0.125: 2.6e-3}
_SMALL = 9.6e-3
_SMALL_SIDE = 16  # pixels up to which the small network is enough
_CHOICES = (  # width of cnn9, local epochs, rounds: the first that fits is taken, else the last
    (0.25, 5, 30),
    (0.25, 3, 30),
    (0.25, 2, 30),
    (0.125, 3, 30),
    (0.125, 2, 30),
    (0.125, 1, 30),
    (0.125, 1, 20),
    (0.125, 1, 15),
)
_THOROUGH = (1.0, 5, 100)  # the paper's for MNIST
_PIXELS: dict[Effort, int] = {"quick": 2_400_000, "default": MOST_PIXELS, "thorough": 0}  # of all images; 0: no limit


@dataclass(frozen=True)
class RunSize:
    """The settings that determine how long a run on images takes."""

    model: dict[str, Any]
    epochs: int
    rounds: int

    @property
    def relabel_round(self) -> int:
        """The first round in which methods change labels: a third into the run, as for MNIST in the paper."""
        return max(1, self.rounds // 3)


def run_size(side: int, samples: float, effort: Effort = "default", cores: int = _CORES) -> RunSize:
    """Return the network, the local epochs and the rounds for images.

    Args:
        side: pixels of an image's side.
        samples: images in one local epoch of a round, over all clients that share the cores.
        effort: "thorough" for the paper's size, however long it takes.
        cores: the number of cores that train in parallel.
    """
    if effort == "thorough":
        width, epochs, rounds = _THOROUGH
        return RunSize(_model(side, width), epochs, rounds)
    seconds = _MINUTES[effort] * 60 * cores
    for width, epochs, rounds in _CHOICES:
        per_image = (_SMALL if side <= _SMALL_SIDE else _CNN9[width]) * (side / 32) ** 2
        if rounds * epochs * samples * per_image <= seconds:
            break
    return RunSize(_model(side, width), epochs, rounds)


FROZEN_SIDE = 224  # pixels at most if each image passes a frozen network once; most pretrained ones know this size
_FROZEN_SHARE = (
    12  # factor of the pixel limit: one forward pass costs a third of a training step, and there is one, not dozens
)


def frozen_pixels(effort: Effort) -> int:
    """Return the largest total number of pixels if each image passes the network once; 0 for no limit."""
    return _FROZEN_SHARE * _PIXELS[effort]


def pixel_budget(effort: Effort) -> int:
    """Return the largest total number of pixels before images are made smaller; 0 for no limit."""
    return _PIXELS[effort]


def _model(side: int, width: float) -> dict[str, Any]:
    """Return the model table: the small network for small images, where its size does not matter."""
    return {"name": "small"} if side <= _SMALL_SIDE else {"name": "cnn9", "width": width}
