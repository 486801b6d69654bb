"""Runs of half a second that do learn, so that their audits have something to say."""

from pathlib import Path
from typing import Any

import rofl
from rofl.config.schema import Experiment
from tests.data.user import places
from tests.flow.tiny import tiny

CLIENTS = ("site 2", "site 10", "=1+1", "[red]x")
CLASSES = ("cat", "dog", "[b]ox")
DIGITS: dict[str, Any] = {
    "rounds": 6,
    "cohort": 4,
    "data__train": 300,
    "model__width": 0.25,
    "method__batch": 10,
    "method__t_pl": 20,
}
SETS = [
    *("clients=4", "cohort=4", "rounds=6", "data.train=300", "data.test=60", "model.name=mlp", "model.width=0.25"),
    *("method.batch=10", "method.epochs=1"),
]


def digits(method: str = "rofl", **changes: Any) -> Experiment:
    """Digits of four clients with 40 % of the labels wrong."""
    settings = {**DIGITS, "method": method, **changes}
    if method != "rofl":
        del settings["method__t_pl"]
    return tiny(**settings)


def own(photos: Path, **changes: Any) -> Experiment:
    """The pictures that `write_photos` wrote."""
    settings = {"rounds": 6, "model__name": "mlp", "model__width": 0.25, "method__epochs": 2, "method__t_pl": 20}
    return rofl.from_data(photos, **{**settings, **changes})


def write_photos(root: Path, each: int = 6) -> dict[str, str]:
    """`<client>/<class>/*.png`, with one picture of each class in the next one's folder: name -> true class."""
    truth = {}
    for place, client in enumerate(CLIENTS):
        for kind, label in enumerate(CLASSES):
            for number in range(each):
                folder = CLASSES[(kind + 1) % 3] if number == 0 else label
                name = f"{client}/{folder}/{kind}{number}.png"
                places.save(root / name, places.picture(kind, 100 * place + number))
                truth[name] = label
    return truth


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
