"""A Hugging Face data set as the inputs of a trained model."""

from collections.abc import Mapping
from typing import Any

from rofl.data.user.arrow_listing import LABELS, TEXTS, is_hf_dataset
from rofl.errors import UserError


def unwrap_hf(inputs: Any) -> Any:
    """Return the images, the texts or the columns of a `datasets.Dataset`; anything else as it is.

    Raises:
        UserError: it is a dictionary of splits.
    """
    if not is_hf_dataset(inputs):
        return inputs
    if isinstance(inputs, Mapping):
        raise UserError(f"The data set has several splits: {', '.join(map(str, inputs))}.", "one of them")
    features = inputs.features
    images = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    found = next((name for name in (*images, *TEXTS) if name in features), None)
    if found is not None:
        return list(inputs[found])
    return {name: _named(inputs[name], feature) for name, feature in features.items() if name not in LABELS}


def _named(column: Any, feature: Any) -> list[Any]:
    """Return the values of a column; numbers of classes become their names, as in training."""
    names = getattr(feature, "names", None)
    if names is None:
        return list(column)
    return [names[value] if isinstance(value, int) and 0 <= value < len(names) else None for value in column]
