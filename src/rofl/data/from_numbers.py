"""A data set from a table of numbers in memory, without a test part; the columns are standardised."""

from collections.abc import Sequence

import numpy as np
import torch

from rofl.core.tensors import digest
from rofl.data.dataset import Dataset
from rofl.data.transforms import Identity
from rofl.data.user.names import natural
from rofl.data.user.table_encoder import TableEncoder


def from_numbers(
    values: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    clients: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> Dataset:
    """Return a data set without a test part.

    Args:
        values: (N, F) numbers, NaN where one is missing.
        labels: (N,) indices into `classes`.
        classes: the names of the classes.
        clients: (N,) the owner of each row; None if the rows have no owners.
        names: of the columns; "x0", "x1" and so on if None.
    """
    columns = [f"x{place}" for place in range(values.shape[1])] if names is None else names
    encoder = TableEncoder.fit_array(columns, np.where(np.isfinite(values), values, np.nan))
    features, numbers = encoder.transform_array(values), torch.from_numpy(labels.astype(np.int64))
    owner_names = sorted(set(clients or ()), key=natural)
    places = {name: place for place, name in enumerate(owner_names)}
    owners = None if clients is None else torch.tensor([places[name] for name in clients])
    content = {"features": features, "labels": numbers, **({} if owners is None else {"owners": owners})}
    return Dataset(
        name="table",
        classes=tuple(classes),
        train=features,
        train_labels=numbers,
        test=features[:0],
        test_labels=numbers[:0],
        transform=Identity((), ()),
        truth_known=False,
        owners=owners,
        clients=tuple(owner_names),
        fingerprint=digest(content)[:32],
        encoder=encoder,
    )
