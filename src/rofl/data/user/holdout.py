"""A test part split off where the data brings none."""

from collections import Counter
from collections.abc import Sequence

import torch

from rofl.core.rng import generator
from rofl.data.user.samples import Sample


def split_holdout(entries: Sequence[Sample], share: float) -> list[int]:
    """Rows to hold out: a share of each client's samples, from each of its classes alike as far as whole samples go.

    Some of a client's samples always stay with it, and of each class too: the last one of all is never taken. The
    choice is the same for every seed of a run, and depends on nobody else's samples.
    """
    groups: dict[str, dict[str, list[int]]] = {}
    for row, entry in enumerate(entries):
        groups.setdefault(entry.client or "", {}).setdefault(entry.label, []).append(row)
    left = Counter(entry.label for entry in entries)
    held: list[int] = []
    for client, classes in groups.items():
        size = sum(map(len, classes.values()))
        wanted = min(round(share * size), size - 1)
        counts = _quotas({label: len(rows) for label, rows in classes.items()}, share, wanted)
        for label in sorted(classes, key=lambda label: (-len(classes[label]), label)):
            missing = wanted - sum(counts.values())  # where classes of one sample each must give too
            if missing > 0 and counts[label] < len(classes[label]) and left[label] - counts[label] > 1:
                counts[label] += 1
        for label, count in counts.items():
            order = torch.randperm(len(classes[label]), generator=generator(0, "holdout", client, label))
            held += [classes[label][place] for place in order[:count].tolist()]
            left[label] -= count
    return sorted(held)


def _quotas(sizes: dict[str, int], share: float, wanted: int) -> dict[str, int]:
    """How many of each class: its share rounded down, then one more for the largest remainders; one always stays."""
    counts = {label: min(int(share * size), size - 1) for label, size in sizes.items()}
    for label in sorted(sizes, key=lambda label: (counts[label] - share * sizes[label], label)):
        if sum(counts.values()) < wanted and counts[label] < sizes[label] - 1:
            counts[label] += 1
    return counts
