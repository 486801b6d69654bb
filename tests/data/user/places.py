"""Own data on disk for tests: the same small pictures as folders, a manifest, arrays and a table."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

CLIENTS = ("site 2", "site 10")
CLASSES = ("cat", "dog", "ox")


def picture(kind: int, number: int, side: int = 8) -> np.ndarray:
    """(side, side) uint8: a bright bar whose place is the class, with some noise."""
    rng = np.random.default_rng([kind, number])
    pixels = rng.integers(0, 60, (side, side), dtype=np.uint8)
    pixels[:, kind * side // 4 : kind * side // 4 + 2] += 180
    return pixels


def samples(
    clients: Sequence[str] = CLIENTS, classes: Sequence[str] = CLASSES, each: int = 5
) -> Iterator[tuple[str, str, str, np.ndarray]]:
    """Client, class, file name and pixels, in the order of a folder."""
    for place, client in enumerate(clients):
        for kind, label in enumerate(classes):
            for number in range(each):
                yield client, label, f"{number}.png", picture(kind, 100 * place + number)


def write_folder(root: Path, with_clients: bool = True, each: int = 5, classes: Sequence[str] = CLASSES) -> Path:
    """`<client>/<class>/*.png`, or `<class>/*.png`."""
    for client, label, name, pixels in samples(classes=classes, each=each):
        save(root / client / label / name if with_clients else root / label / f"{client} {name}", pixels)
    return root


def save(path: Path, pixels: np.ndarray) -> Path:
    """A picture in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def write_manifest(path: Path, with_clients: bool = True) -> Path:
    """Beside the folder that `write_folder` made, whose name is `photos`."""
    rows = [(client, f"photos/{client}/{label}/{name}", f" {label} ") for client, label, name, _ in samples()]
    head = ("client", "path", "label")
    write_csv(path, [head, *rows] if with_clients else [head[1:], *(row[1:] for row in rows)])
    return path


def write_arrays(path: Path, **changes: object) -> Path:
    """An .npz of the same pictures; a change of None leaves an array out."""
    found = list(samples())
    arrays: dict[str, object] = {
        "images": np.stack([pixels for *_, pixels in found]),
        "labels": np.array([label for _, label, *_ in found]),
        "clients": np.array([client for client, *_ in found]),
    }
    arrays |= changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})  # type: ignore[arg-type]
    return path


def write_table(path: Path, rows: int = 60) -> Path:
    """Numbers that tell two classes apart, a category, a missing number, two clients."""
    rng = np.random.default_rng(0)
    lines: list[Sequence[object]] = [("client", "label", "weight", "colour", "height")]
    for row in range(rows):
        kind = row % 2
        weight = "" if row == 7 else f"{rng.normal(5 * kind, 1):.3f}"
        lines.append((f"farm {row % 4 // 2}", ("hen", "cow")[kind], weight, ("red", "blue")[row % 3 == 0], row % 7))
    write_csv(path, lines)
    return path


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """A CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
