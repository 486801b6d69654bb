"""A small network for texts: embeddings of words, and filters over three words in a row (Kim 2014)."""

import torch
from torch import Tensor, nn

from rofl.data.token_numbers import BUCKETS
from rofl.models.network import FeatureClassifier

_EMBEDDING, _FILTERS = 64, 128  # at width 1


class _TextFeatures(nn.Module):
    """(B, L, 1, 1) word indices, 0 as padding -> (B, d): the maximum of each filter, and the mean embedding."""

    def __init__(self, embedding: int, filters: int) -> None:
        super().__init__()
        self.words = nn.Embedding(BUCKETS, embedding, padding_idx=0)
        self.filters = nn.Conv1d(embedding, filters, kernel_size=3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        numbers = x.flatten(1).long().clamp(0, BUCKETS - 1)  # (B, L)
        present = (numbers > 0).unsqueeze(1).to(x.dtype)  # (B, 1, L)
        words = self.words(numbers).transpose(1, 2)  # (B, e, L)
        responses = self.filters(words).relu() * present  # (B, f, L); at least 0
        mean = (words * present).sum(dim=2) / present.sum(dim=2).clamp(min=1)  # (B, e)
        return torch.cat([responses.amax(dim=2), mean], dim=1)


class TextCnn(FeatureClassifier):
    """128 filters over embeddings of 64 numbers at width 1; 192 features."""

    def __init__(self, shape: tuple[int, int, int], classes: int, width: float = 1.0) -> None:
        embedding, filters = (max(1, round(full * width)) for full in (_EMBEDDING, _FILTERS))
        super().__init__(_TextFeatures(embedding, filters), embedding + filters, classes)
