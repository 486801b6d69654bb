"""What hypothesis draws for the audit: labels, and probabilities of models."""

import itertools

import torch
from hypothesis import strategies as st
from torch import Tensor

from rofl.core.rng import generator
from tests.naive.equations import Matrix


@st.composite
def distributions(draw: st.DrawFn, rows: int, classes: int) -> Matrix:
    """Rows that sum to 1, with zeros, ties and sure ones among them; quarters, so that a tie is one in bits too."""
    drawn = []
    for _ in range(rows):
        cuts = sorted(draw(st.lists(st.integers(0, 4), min_size=classes - 1, max_size=classes - 1)))
        edges = [0, *cuts, 4]
        drawn.append([(high - low) / 4 for low, high in itertools.pairwise(edges)])
    return drawn


@st.composite
def networks(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Labels and probabilities as networks give them, from nearly even to nearly sure; none is 0."""
    samples, classes = draw(st.integers(1, 40)), draw(st.integers(2, 5))
    rng = generator(draw(st.integers(0, 10_000)), "audit")
    logits = torch.randn(samples, classes, generator=rng, dtype=torch.float64) * draw(st.sampled_from([0.01, 1.0, 9.0]))
    return torch.randint(0, classes, (samples,), generator=rng), logits.softmax(dim=1)
