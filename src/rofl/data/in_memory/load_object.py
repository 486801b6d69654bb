"""Data sets from Python objects of any supported kind."""

from typing import Any

from rofl.data.dataset import Dataset
from rofl.data.from_arrays import from_fields, has_fields
from rofl.data.in_memory.frame_listing import is_frame, list_frame
from rofl.data.in_memory.sequence_listing import is_sequence_of_samples, list_sequence
from rofl.data.user.arrow_listing import is_hf_dataset, list_hf_dataset
from rofl.data.user.load import load_listing
from rofl.data.user.samples import Listing
from rofl.data.user.source import UserSource


def as_dataset(
    source: Any, *, test: Any = None, name: str = "arrays", side: int = 0, channels: int = 0, tokenizer: str = ""
) -> Dataset:
    """Return a data set from an object that holds samples.

    Args:
        source: a `Dataset`, which is returned as it is; a data frame with a column `label`; a Hugging Face data set, or
            a dictionary of its splits; any object with `images` or `data`, `labels` or `targets` and, if
            present, `clients` or `owners`, `classes`, `test_images` and `test_labels` as keys or attributes, such as an
            opened .npz file or a torchvision data set; or a `torch.utils.data.Dataset` of (image, label).
        test: another object with images and labels as keys or attributes, which are the test part, such as
            torchvision's `train=False`.
        name: of the data set, for summaries.
        side: the side in pixels to which images of different sizes are resized; 0 to choose. Arrays keep their size.
        channels: the channels of such images; 0 to choose.
        tokenizer: of texts: the path of a tokenizer.json or of its folder; "" to hash words.

    Raises:
        UserError: the object is of another kind, or its samples do not match.

    >>> import numpy as np
    >>> as_dataset({"images": np.zeros((10, 8, 8), np.uint8), "targets": [0, 1] * 5}).classes
    ('0', '1')
    """
    if isinstance(source, Dataset):
        return source
    listing = _list_object(source) if test is None else None
    if listing is not None:
        about = UserSource(f"the {type(source).__name__}", side=side, channels=channels, tokenizer=tokenizer)
        return load_listing(listing, about)
    return from_fields(source, test=test, name=name)


def _list_object(source: Any) -> Listing | None:
    """Return the samples of an object of another library; None if the object holds arrays."""
    if is_frame(source):
        return list_frame(source)
    if is_hf_dataset(source):
        return list_hf_dataset(source)
    if has_fields(source) or not is_sequence_of_samples(source):
        return None
    return list_sequence(source)
