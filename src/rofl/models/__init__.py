"""Networks: one file each, and the registry of their names.

Every network has `classes`, `feature_size` and `forward(x) -> (logits, features)`. May import: core, data.
"""

from rofl.models.adapter import adapt
from rofl.models.model_registry import MODELS, build
from rofl.models.network import Network

__all__ = ["MODELS", "Network", "adapt", "build"]
