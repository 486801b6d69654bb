"""Image files for tests: smooth patterns, since JPEG does badly on noise."""

from pathlib import Path

import numpy as np
from PIL import Image


def pattern(width: int, height: int, seed: int) -> np.ndarray:
    """(height, width, 3) uint8, different for each seed."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))


def write(path: Path, width: int = 20, height: int = 16, mode: str = "RGB", seed: int = 0) -> Path:
    """A picture in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colours = Image.fromarray(pattern(width, height, seed))
    if mode == "I;16":
        grey = np.asarray(colours.convert("L")).astype(np.uint16) * 256 + 77
        Image.fromarray(grey).save(path)
    else:
        colours.convert(mode).save(path)
    return path


def write_clothing1m(root: Path, train: int = 12, val: int = 4, test: int = 6, annotations: str = "") -> dict[str, int]:
    """A small Clothing1M in the published layout; returns the noisy labels by key."""
    counts = {"noisy_train": train, "clean_train": 2, "clean_val": val, "clean_test": test}
    noisy: dict[str, int] = {}
    clean: dict[str, int] = {}
    texts: dict[str, list[str]] = {}
    for part, count in counts.items():
        keys = [f"images/{n % 10}/{n * 7 % 100:02}/{n}376{len(part)},9053{n}{len(noisy)}.jpg" for n in range(count)]
        for n, key in enumerate(keys):
            write(root / key, 40 + n, 300 if n == 0 else 30, seed=len(noisy) + len(clean))
            (noisy if part == "noisy_train" else clean)[key] = (5 * n + len(part)) % 14
        texts[f"{part}_key_list.txt"] = keys
    noisy[next(iter(clean))] = 3  # some images have both labels
    for kind, labels in (("noisy", noisy), ("clean", clean)):
        texts[f"{kind}_label_kv.txt"] = [f"{key} {label}" for key, label in reversed(labels.items())]
    folder = root / annotations
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return noisy
