"""What is found in a user's own data before anything is decoded."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

Content: TypeAlias = (
    Path | np.ndarray | tuple[str, ...]
)  # an image file, an array (H, W) or (H, W, C), cells of a table


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample: whose it is, what it is said to be, and where it lies."""

    id: str
    label: str
    client: str | None  # None: the data names no clients
    test: bool
    content: Content


@dataclass(frozen=True)
class Listing:
    """All samples of one source."""

    entries: list[Sample]
    notes: list[str] = field(default_factory=list)  # sentences that the reader of results should know
    features: tuple[str, ...] = ()  # columns of a table; empty for images
