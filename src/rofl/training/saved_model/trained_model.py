"""A trained model that predicts raw images, rows or texts; its preprocessing is included."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rofl.core.classification import class_probabilities
from rofl.data.image_store import ImageStore
from rofl.data.preprocessing import TablePreprocessing, TextPreprocessing
from rofl.data.raw_images import RawImages, read_raw_images
from rofl.data.raw_tables import read_codes, read_raw_rows, read_raw_texts, unwrap_hf
from rofl.data.user.names import list_some
from rofl.errors import UserError
from rofl.methods.inference import CHUNK
from rofl.models import Network
from rofl.training.saved_model.model_files import ModelRecord
from rofl.training.saved_model.raw_module import raw_module

OnPredicted = Callable[[int, int], None]  # called with the numbers of processed samples and of all samples


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """The model of a finished run, for raw samples; `rofl.load` returns one.

    A model of images takes a path or several, an array or a tensor of pixels, or a list of arrays, tensors and PIL
    images. They may have any size: they are decoded and resized as in training. Pixels are uint8, or numbers from 0 to
    1; nothing has to be scaled by hand.

    A model of tables takes a data frame, columns by name, a list of records, an array with the columns in their order
    in training, or the path of a CSV or parquet file.

    A model of texts takes a text or several, a data frame with a column `text`, or the path (a `Path`) of such a table.

    Attributes:
        record: the content of model.json: classes, preprocessing and network.
        network: the network, in evaluation mode; it takes what `preprocess` returns.
    """

    record: ModelRecord
    network: Network = field(repr=False)

    def __repr__(self) -> str:
        """Return a one-line description; a table's encoder alone would fill a screen."""
        names = list_some(self.classes)
        return f"TrainedModel({self.record.title!r}, {self.record.network.name}, {len(self.classes)} classes: {names})"

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the columns of `predict_proba`."""
        return self.record.classes

    def predict(self, inputs: Any) -> np.ndarray:
        """Return the name of the most probable class of each sample, (n,)."""
        places = np.concatenate([np.empty(0, int), *(logits.argmax(1).numpy() for logits, _ in self._outputs(inputs))])
        names: np.ndarray = np.array(self.classes)[places]
        return names

    def predict_proba(self, inputs: Any) -> np.ndarray:
        """Return the probability of each class for each sample, (n, K) float64; the rows sum to 1."""
        parts = [class_probabilities(logits).numpy() for logits, _ in self._outputs(inputs)]
        return np.concatenate([np.empty((0, len(self.classes))), *parts])

    def embed(self, inputs: Any) -> np.ndarray:
        """Return the features of each sample, (n, d) float32: the input of the last layer."""
        parts = [features.numpy() for _, features in self._outputs(inputs)]
        return np.concatenate([np.empty((0, self.network.feature_size), np.float32), *parts])

    def preprocess(self, inputs: Any) -> Tensor:
        """Return the inputs of `network`, (n, C, H, W) float32; (n, F, 1, 1) for the rows of a table."""
        return self.record.preprocessing.transform(self._samples(inputs)[:])

    def codes(self, inputs: Any) -> Tensor:
        """Return rows or texts in the form that `module` and exported models expect.

        Rows of a table become numbers (n, columns) float64, texts word indices (n, length) int64.

        Raises:
            UserError: it is a model of images.
        """
        form, inputs = self.record.preprocessing, unwrap_hf(inputs)
        if isinstance(form, TextPreprocessing):
            return read_raw_texts(inputs, form).flatten(1).long()
        if not isinstance(form, TablePreprocessing):
            raise UserError("An image model takes pixels and has no codes.", "model.module(pixels)")
        return read_codes(inputs, form)

    def logits(self, inputs: Any, progress: OnPredicted | None = None) -> tuple[Tensor, Tensor]:
        """Return logits (n, K) and features (n, d) of all samples.

        Args:
            inputs: raw samples.
            progress: called after each chunk of samples.
        """
        return self.stored_logits(self._samples(inputs), progress)

    def stored_logits(
        self, samples: ImageStore | RawImages, progress: OnPredicted | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return logits (n, K) and features (n, d) of samples as a `Dataset` stores them: decoded, not scaled.

        Args:
            samples: (n, C, H, W) pixels, or encoded rows (n, F, 1, 1).
            progress: called after each chunk of samples.
        """
        parts = list(self._chunks(samples, progress))
        if not parts:
            return torch.empty(0, len(self.classes)), torch.empty(0, self.network.feature_size)
        logits, features = zip(*parts, strict=True)
        return torch.cat(logits), torch.cat(features)

    @cached_property
    def module(self) -> nn.Module:
        """The model as a plain `torch.nn.Module` from raw samples to logits, with the preprocessing inside.

        For images it takes (B, C, H, W) pixels from 0 to 255 of the size in `record.preprocessing`; for tables and
        texts it takes what `codes` returns.
        """
        return raw_module(self.network, self.record.preprocessing)

    def to(self, device: torch.device | str) -> "TrainedModel":
        """Move the model to a device and return it; results are always on the CPU."""
        return TrainedModel(self.record, self.network.to(device))

    def _samples(self, inputs: Any) -> RawImages | Tensor:
        form, inputs = self.record.preprocessing, unwrap_hf(inputs)
        if isinstance(form, TablePreprocessing):
            return read_raw_rows(inputs, form)
        if isinstance(form, TextPreprocessing):
            return read_raw_texts(inputs, form)
        return read_raw_images(inputs, form)

    def _outputs(self, inputs: Any) -> Iterator[tuple[Tensor, Tensor]]:
        return self._chunks(self._samples(inputs))

    @torch.no_grad()
    def _chunks(
        self, samples: ImageStore | RawImages, progress: OnPredicted | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield logits and features on the CPU, in the same chunks as a run, for the same bits."""
        transform = self.record.preprocessing.transform
        for start in range(0, len(samples), CHUNK):
            stop = min(start + CHUNK, len(samples))
            logits, features = self._predictor(transform(samples[start:stop].to(self._predictor.device)))
            yield logits.cpu(), features.cpu()
            if progress is not None:
                progress(stop, len(samples))

    @cached_property
    def _predictor(self) -> Network:
        return self.network.predictor()
