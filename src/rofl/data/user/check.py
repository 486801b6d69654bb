"""Checks user data before a run: sizes, duplicates, unreadable files, and small or skewed clients."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from rofl.data.user.decode import Progress
from rofl.data.user.names import natural
from rofl.data.user.scan import ScannedData, scan
from rofl.data.user.source import UserSource
from rofl.data.user.text_encoder import TextEncoder

_FEW = 10  # training samples; a client with fewer hardly contributes


@dataclass(frozen=True)
class DataCheck:
    """The findings of a check of usable data.

    Attributes:
        kind: "images", "table" or "texts".
        samples: The number of samples to "train" and to "test" with.
        test_part: "given" if the data has a test part, else "split off".
        clients: Client -> its number of training samples; empty if the data names no clients.
        classes: Class -> its number of training samples.
        test_classes: Class -> its number of test samples.
        duplicates: Kind of duplicate -> groups of equal samples, by name.
        unreadable: File -> why it cannot be read.
        classes_of_one_client: The classes that a single client has.
        clients_with_few_samples: The clients with too few samples to contribute much.
        notes: Sentences about what was left out or assumed.
        columns: The number of features of a table, or of used words of a text; None for images.
        sizes: Most frequent image sizes -> count; None for a table, like all fields below.
        shorter_side: The "smallest", "median" and "largest" length of images' shorter side, in pixels.
        modes: Most frequent colour modes -> count.
        becomes: The "side" in pixels and the "channels" of the decoded images.
    """

    kind: Literal["images", "table", "texts"]
    samples: dict[str, int]
    test_part: Literal["given", "split off"]
    clients: dict[str, int]
    classes: dict[str, int]
    test_classes: dict[str, int]
    duplicates: dict[str, list[list[str]]]
    unreadable: dict[str, str]
    classes_of_one_client: list[str]
    clients_with_few_samples: list[str]
    notes: list[str]
    columns: int | None = None
    sizes: dict[str, int] | None = None
    shorter_side: dict[str, int] | None = None
    modes: dict[str, int] | None = None
    becomes: dict[str, int] | None = None


def check_user_data(source: UserSource | Path | str, progress: Progress | None = None) -> DataCheck:
    """Return findings about user data.

    Args:
        source: the source, or a path, which stands for `UserSource(path)`.
        progress: called after each decoded image.

    Raises:
        UserError: the data cannot be used.
    """
    scanned = scan(source if isinstance(source, UserSource) else UserSource(str(source)), progress)
    train = [scanned.samples[row] for row in scanned.train]
    test = [scanned.samples[row] for row in scanned.test]
    clients = Counter(sample.client for sample in train if sample.client is not None)
    owners_of_class = defaultdict(set)
    for sample in train:
        owners_of_class[sample.label].add(sample.client)
    return DataCheck(
        kind="texts" if isinstance(scanned.encoder, TextEncoder) else "table" if scanned.is_table else "images",
        samples={"train": len(train), "test": len(test)},
        test_part="given" if any(sample.test for sample in scanned.samples) else "split off",
        clients=_ordered(clients),
        classes=_ordered(Counter(sample.label for sample in train)),
        test_classes=_ordered(Counter(sample.label for sample in test)),
        duplicates=_duplicates(scanned),
        unreadable=scanned.unreadable,
        classes_of_one_client=sorted(
            (label for label, owners in owners_of_class.items() if len(owners) == 1 and len(clients) > 1), key=natural
        ),
        clients_with_few_samples=sorted((name for name, count in clients.items() if count < _FEW), key=natural),
        notes=list(scanned.notes),
        columns=scanned.pixels.shape[1] if scanned.is_table else None,
        **({} if scanned.is_table else _image_findings(scanned)),
    )


def _image_findings(scanned: ScannedData) -> dict[str, dict[str, int]]:
    """Return the sizes and modes of the files, and the shape that the images are decoded to."""
    infos = [info for info in scanned.infos if not info.error]
    shorter = [min(info.size) for info in infos]
    return {
        "sizes": _most_frequent(f"{info.size[0]} x {info.size[1]}" for info in infos),
        "shorter_side": {"smallest": min(shorter), "median": int(median(shorter)), "largest": max(shorter)},
        "modes": _most_frequent(info.mode for info in infos),
        "becomes": {"side": scanned.pixels.shape[2], "channels": scanned.pixels.shape[1]},
    }


def _duplicates(scanned: ScannedData) -> dict[str, list[list[str]]]:
    """Return groups of samples with equal content, by the parts they are in, and those with different labels."""
    rows_of_digest: dict[str, list[int]] = defaultdict(list)
    for row in [*scanned.train, *scanned.test]:
        rows_of_digest[scanned.infos[row].digest].append(row)
    tests = set(scanned.test)
    groups = [rows for rows in rows_of_digest.values() if len(rows) > 1]
    mixed = [rows for rows in groups if 0 < len(tests.intersection(rows)) < len(rows)]
    disagreeing = [rows for rows in groups if len({scanned.samples[row].label for row in rows}) > 1]
    return {
        "within_train": _ids(scanned, (rows for rows in groups if len(set(rows) - tests) > 1)),
        "within_test": _ids(scanned, (rows for rows in groups if len(tests.intersection(rows)) > 1)),
        "between_train_and_test": _ids(scanned, mixed),
        "with_different_labels": _ids(scanned, disagreeing),
    }


def _ids(scanned: ScannedData, groups: Iterable[list[int]]) -> list[list[str]]:
    return [[scanned.samples[row].id for row in rows] for rows in groups]


def _ordered(counts: Counter[str]) -> dict[str, int]:
    """Return counts in the natural order of their names."""
    return {name: counts[name] for name in sorted(counts, key=natural)}


def _most_frequent(names: Iterable[str]) -> dict[str, int]:
    """Return the ten most frequent names with their counts."""
    return dict(Counter(names).most_common(10))
