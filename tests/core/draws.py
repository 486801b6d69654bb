"""What hypothesis draws for the core: small batches with zeros, ties and absent classes among them."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.naive.equations import Matrix

# Zero or well away from it: nearly-zero vectors have a direction that rounding decides.
values = st.one_of(st.just(0.0), st.integers(-4, 4).map(float), st.floats(1e-3, 10), st.floats(-10, -1e-3))


def matrices(rows: int, columns: int) -> st.SearchStrategy[Matrix]:
    return st.lists(st.lists(values, min_size=columns, max_size=columns), min_size=rows, max_size=rows)


@dataclass
class Batch:
    classes: int
    features: Matrix  # (n, d)
    labels: list[int]  # (n,)
    keep: list[bool]  # (n,)
    centroids: Matrix  # (K, d)


@st.composite
def batch(draw: st.DrawFn) -> Batch:
    samples, size, classes = draw(st.integers(1, 7)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    return Batch(
        classes=classes,
        features=draw(matrices(samples, size)),
        labels=draw(st.lists(st.integers(0, classes - 1), min_size=samples, max_size=samples)),
        keep=draw(st.lists(st.booleans(), min_size=samples, max_size=samples)),
        centroids=draw(matrices(classes, size)),
    )


def real(rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def order(samples: int) -> Tensor:
    """A fixed shuffle that is not its own inverse for 3 samples and more."""
    return torch.arange(samples).roll(1)
