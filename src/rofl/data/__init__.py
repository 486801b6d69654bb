"""Data sets and their distribution over clients: loading, label noise, partitioning, batching. May import: core.

`sources` loads published data sets, `user` reads a user's files, `from_arrays` accepts Python objects; `federated`
combines a data set with label noise and a partition over clients.
"""

from rofl.data.client_dataset import ClientDataset, batches
from rofl.data.dataset import Dataset
from rofl.data.dataset_registry import DATASETS, load_dataset
from rofl.data.transforms import Transform

__all__ = ["DATASETS", "ClientDataset", "Dataset", "Transform", "batches", "load_dataset"]
