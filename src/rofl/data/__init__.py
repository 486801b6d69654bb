"""Arrays in, shards out."""

from rofl.data.batches import Shard, Transform, batches
from rofl.data.image_set import ImageSet
from rofl.data.sets import DATASETS, load

__all__ = ["DATASETS", "ImageSet", "Shard", "Transform", "batches", "load"]
