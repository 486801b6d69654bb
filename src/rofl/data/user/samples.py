"""Listed samples of user data, before anything is decoded."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

# an image file, the content of one, an array (H, W[, C]), or the cells of a table
Content: TypeAlias = Path | bytes | np.ndarray | tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample with its content, label and owner."""

    id: str  # its name in lists of suspects
    label: str  # as given
    client: str | None  # None: the data names no clients
    test: bool  # whether it is in the test part
    content: Content


@dataclass(frozen=True)
class Listing:
    """All samples of one source."""

    samples: list[Sample]
    notes: list[str] = field(default_factory=list)  # sentences for the reader of results
    features: tuple[str, ...] = ()  # the columns of a table; empty for images
