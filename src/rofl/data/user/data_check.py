"""What there is to know about own data before a run: sizes, duplicates, and what looks odd."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

from rofl.data.user.decode import Progress
from rofl.data.user.names import natural
from rofl.data.user.scan import ScannedData, UserSource, scan

_FEW = 10  # training samples; a client with fewer hardly counts


def check_user_data(source: UserSource, progress: Progress | None = None) -> dict[str, Any]:
    """Findings by name, ready for JSON. Raises UserError where the data cannot be used."""
    found = scan(source, progress)
    train = [found.entries[row] for row in found.train]
    test = [found.entries[row] for row in found.test]
    clients = Counter(entry.client for entry in train if entry.client is not None)
    holders = defaultdict(set)
    for entry in train:
        holders[entry.label].add(entry.client)
    return {
        "usable": True,
        "kind": "table" if found.is_table else "images",
        "samples": {"train": len(train), "test": len(test)},
        "test_part": "given" if any(entry.test for entry in found.entries) else "split off",
        "clients": _ordered(clients),
        "classes": _ordered(Counter(entry.label for entry in train)),
        "test_classes": _ordered(Counter(entry.label for entry in test)),
        **({"columns": found.pixels.shape[1]} if found.is_table else _pictures(found)),
        "duplicates": _duplicates(found),
        "unreadable": found.unreadable,
        "classes_of_one_client": sorted(
            (label for label, owners in holders.items() if len(owners) == 1 and len(clients) > 1), key=natural
        ),
        "clients_with_few_samples": sorted((name for name, count in clients.items() if count < _FEW), key=natural),
        "notes": found.notes,
    }


def _pictures(found: ScannedData) -> dict[str, Any]:
    """Sizes and modes as found, and what the images become."""
    looks = [look for look in found.looks if not look.error]
    shorter = [min(look.size) for look in looks]
    return {
        "sizes": _most_frequent(f"{look.size[0]} x {look.size[1]}" for look in looks),
        "shorter_side": {"smallest": min(shorter), "median": int(median(shorter)), "largest": max(shorter)},
        "modes": _most_frequent(look.mode for look in looks),
        "becomes": {"side": found.pixels.shape[2], "channels": found.pixels.shape[1]},
    }


def _duplicates(found: ScannedData) -> dict[str, Any]:
    """Groups of samples with the same content, by where they lie, and those that do not agree on the label."""
    same: dict[str, list[int]] = defaultdict(list)
    for row in [*found.train, *found.test]:
        same[found.looks[row].digest].append(row)
    tests = set(found.test)
    groups = [rows for rows in same.values() if len(rows) > 1]
    mixed = [rows for rows in groups if 0 < len(tests.intersection(rows)) < len(rows)]
    return {
        "within_train": _names(found, (r for r in groups if len(set(r) - tests) > 1)),
        "within_test": _names(found, (r for r in groups if len(tests.intersection(r)) > 1)),
        "between_train_and_test": _names(found, mixed),
        "with_different_labels": _names(found, (r for r in groups if len({found.entries[n].label for n in r}) > 1)),
    }


def _names(found: ScannedData, groups: Iterable[list[int]]) -> list[list[str]]:
    return [[found.entries[row].id for row in rows] for rows in groups]


def _ordered(counts: Counter[Any]) -> dict[str, int]:
    return {name: counts[name] for name in sorted(counts, key=natural)}


def _most_frequent(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common(10))
