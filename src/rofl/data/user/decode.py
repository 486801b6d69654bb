"""Many images: a look at all of them, the side and channels that suit them, and their pixels, decoded once."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from rofl.data.user import image_cache, image_file
from rofl.data.user.image_file import ImageInfo
from rofl.data.user.samples import Content, Sample

Progress = Callable[[int, int], None]  # told how many samples are done, and of how many
_LARGEST, _SMALLEST, _STEP = 64, 8, 4  # pixels a side
_SAMPLED = 100  # images with a colour mode that are looked at for colours


def inspect_all(entries: Sequence[Sample]) -> list[ImageInfo]:
    """Digest and header of each sample; files are read side by side."""
    with _threads() as pool:
        return list(pool.map(image_file.inspect_image, [entry.content for entry in entries]))


def suitable_side(looks: Sequence[ImageInfo]) -> int:
    """The median of the smaller sides, at most 64, at least 8, a multiple of 4."""
    shorter = [min(look.size) for look in looks if not look.error]
    middle = int(median(shorter)) if shorter else _LARGEST
    return max(_SMALLEST, min(_LARGEST, middle // _STEP * _STEP))


def suitable_channels(entries: Sequence[Sample], looks: Sequence[ImageInfo]) -> int:
    """1 where no image has colours: by the mode of all, and by the pixels of some whose mode has colours."""
    coloured = [e.content for e, look in zip(entries, looks, strict=True) if not look.grey and not look.error]
    some = coloured[:: max(1, len(coloured) // _SAMPLED)]
    with _threads() as pool:
        return 1 if all(pool.map(lambda content: image_file.is_grey(content, _LARGEST), some)) else 3


def decode_all(
    entries: Sequence[Sample], looks: Sequence[ImageInfo], side: int, channels: int, progress: Progress | None = None
) -> tuple[Tensor, dict[int, str]]:
    """Pixels (N, C, side, side) uint8 of all samples, and the rows that cannot be read, with the reason."""
    in_files = all(isinstance(entry.content, Path) for entry in entries)
    place = (
        image_cache.cache_path([e.id for e in entries], [look.digest for look in looks], side, channels)
        if in_files
        else None
    )
    kept = image_cache.read_cache(place) if place else None
    if kept is not None and kept[0].shape == (len(entries), channels, side, side):
        return kept
    pixels = np.zeros((len(entries), side, side, channels), dtype=np.uint8)
    unreadable: dict[int, str] = {}

    def one(row: int) -> str:
        content: Content = entries[row].content
        assert not isinstance(content, tuple)
        try:
            pixels[row] = image_file.decode_image(content, side, channels)
            return ""
        except Exception as error:  # PIL raises what its decoders do, and for a huge image what guards against it
            return image_file.reason(error)

    with _threads() as pool:
        for row, problem in enumerate(pool.map(one, range(len(entries)))):
            if problem:
                unreadable[row] = problem
            if progress is not None:
                progress(row + 1, len(entries))
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    if place:
        image_cache.write_cache(place, images, unreadable)
    return images, unreadable


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """PIL decodes outside Python's lock. Its remarks on odd files are silenced, one on a huge image is an error."""
    with warnings.catch_warnings(), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            yield pool
        except BaseException:  # after Ctrl-C nobody waits for the rest
            pool.shutdown(wait=False, cancel_futures=True)
            raise
