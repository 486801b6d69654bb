"""Data sets, and who holds which samples: loading, splitting, corrupting, batching. May import: core."""

from rofl.data.client_dataset import ClientDataset, batches
from rofl.data.dataset import Dataset
from rofl.data.registry import DATASETS, load_dataset
from rofl.data.transforms import Transform

__all__ = ["DATASETS", "ClientDataset", "Dataset", "Transform", "batches", "load_dataset"]
