"""Holdout: splits off a test part, for data without one."""

from collections import Counter
from collections.abc import Sequence

import torch

from rofl.core.rng import generator
from rofl.data.user.samples import Sample


def split_holdout(samples: Sequence[Sample], share: float) -> list[int]:
    """Return the sorted rows to hold out: a share of each client's samples, stratified by class.

    Every client and every class keeps at least one sample. The result does not depend on the seed of a run, and hardly
    on other clients: only the last sample of a class is protected.

    Args:
        samples: only their clients and labels are used.
        share: from 0 to 1.
    """
    groups: dict[str, dict[str, list[int]]] = {}  # client -> class -> rows
    for row, sample in enumerate(samples):
        groups.setdefault(sample.client or "", {}).setdefault(sample.label, []).append(row)
    remaining = Counter(sample.label for sample in samples)
    held_out: list[int] = []
    for client, classes in groups.items():
        size = sum(map(len, classes.values()))
        wanted = min(round(share * size), size - 1)
        counts = _quotas({label: len(rows) for label, rows in classes.items()}, share, wanted)
        for label in sorted(classes, key=lambda label: (-len(classes[label]), label)):
            missing = wanted - sum(counts.values())  # if most classes have one sample, some must be given up
            if missing > 0 and counts[label] < len(classes[label]) and remaining[label] - counts[label] > 1:
                counts[label] += 1
        for label, count in counts.items():
            order = torch.randperm(len(classes[label]), generator=generator(0, "holdout", client, label))
            held_out += [classes[label][place] for place in order[:count].tolist()]
            remaining[label] -= count
    return sorted(held_out)


def _quotas(sizes: dict[str, int], share: float, wanted: int) -> dict[str, int]:
    """Return how many samples of each class to hold out, by the largest-remainder method; one always stays.

    Args:
        sizes: the samples of each class at one client.
        share: from 0 to 1.
        wanted: the sum to reach, if whole samples allow it.
    """
    counts = {label: min(int(share * size), size - 1) for label, size in sizes.items()}
    for label in sorted(sizes, key=lambda label: (counts[label] - share * sizes[label], label)):
        if sum(counts.values()) < wanted and counts[label] < sizes[label] - 1:
            counts[label] += 1
    return counts
