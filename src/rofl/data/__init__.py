"""Data sets and their distribution over clients: loading, label noise, partitioning, batching. May import: core.

`sources` has the published data sets, `user` reads a user's files, `from_arrays` takes Python objects; `federated` puts
a data set together with its noise and its clients.
"""

from rofl.data.client_dataset import ClientDataset, batches
from rofl.data.dataset import Dataset
from rofl.data.dataset_registry import DATASETS, load_dataset
from rofl.data.transforms import Transform

__all__ = ["DATASETS", "ClientDataset", "Dataset", "Transform", "batches", "load_dataset"]
