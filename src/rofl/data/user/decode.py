"""Decodes many images: their headers, the side and channels to decode to, and their pixels.

Pixels are decoded once and cached below `$ROFL_CACHE`, in a file named by the digests of the images.
"""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import safetensors.torch
import torch
from PIL import Image
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rofl.core.serialization import parse_json
from rofl.core.tensors import digest
from rofl.data import atomic, image_io
from rofl.data.image_io import ImageInfo
from rofl.data.regular_file import memory_budget
from rofl.data.user.samples import Content, Sample
from rofl.errors import UserError

Progress = Callable[[int, int], None]  # called with the numbers of processed samples and of all samples
_LARGEST, _SMALLEST, _STEP = 64, 8, 4  # pixels a side
_LEAST_CHOSEN = 32  # a side that a large number of images does not reduce further
_SAMPLED = 100  # images in a colour mode whose pixels are checked for colours
_VERSION = "1"  # increase when the same files would be decoded to other pixels


def inspect_all(samples: Sequence[Sample]) -> list[ImageInfo]:
    """Return the digest and the image header of each sample; files are read in threads."""
    with decoding_threads() as pool:
        return list(pool.map(_inspect, [sample.content for sample in samples]))


def suitable_side(infos: Sequence[ImageInfo], most_pixels: int = 0, most_side: int = _LARGEST) -> int:
    """Return the side to decode images to: the median shorter side, as a multiple of 4 from 8 to `most_side`.

    Args:
        infos: of all images.
        most_pixels: of all images together; many images are made smaller to meet it, but not below 32; 0 for no limit.
        most_side: the largest side.
    """
    shorter = [min(info.size) for info in infos if not info.error]
    middle = int(median(shorter)) if shorter else most_side
    largest = most_side
    if most_pixels and shorter:
        largest = max(_LEAST_CHOSEN, min(most_side, math.isqrt(most_pixels // len(shorter))))
    return max(_SMALLEST, min(largest, middle) // _STEP * _STEP)


def suitable_channels(samples: Sequence[Sample], infos: Sequence[ImageInfo]) -> int:
    """Return 3 if any image has colours, else 1.

    The modes of all images are checked, and the pixels of about 100 of those whose mode has colours.
    """
    coloured = [sample.content for sample, info in zip(samples, infos, strict=True) if not info.grey and not info.error]
    checked = coloured[:: max(1, len(coloured) // _SAMPLED)]
    with decoding_threads() as pool:
        return 1 if all(pool.map(lambda content: image_io.is_grey(content, _LARGEST), checked)) else 3


def decode_all(
    samples: Sequence[Sample], infos: Sequence[ImageInfo], side: int, channels: int, progress: Progress | None = None
) -> tuple[Tensor, dict[int, str]]:
    """Decode all samples in threads, or read their pixels from the cache.

    Args:
        samples: whose contents are image files or arrays; only files are cached.
        infos: of `inspect_all`; their digests are the key of the cache.
        side: the height and width of the decoded images.
        channels: 1 for grey, 3 for colours.
        progress: called after each image; not called if the cache is used.

    Returns:
        The pixels (N, channels, side, side) uint8, and the reason for each row that cannot be read (its pixels are 0).

    Raises:
        UserError: they take more than half of the memory; a coordinator chooses the side for its sites.
    """
    if len(samples) * side * side * channels > memory_budget():
        problem = f"{len(samples)} images of {side} x {side} pixels do not fit into half of the memory."
        raise UserError(problem, "a smaller data.side")
    in_files = all(isinstance(sample.content, Path) for sample in samples)
    cache_file = (
        cache_path([sample.id for sample in samples], [info.digest for info in infos], side, channels)
        if in_files
        else None
    )
    cached = read_cache(cache_file) if cache_file else None
    if cached is not None and cached[0].shape == (len(samples), channels, side, side):
        return cached
    pixels = np.zeros((len(samples), side, side, channels), dtype=np.uint8)
    unreadable: dict[int, str] = {}

    def decode_row(row: int) -> str:
        content = samples[row].content
        assert not isinstance(content, tuple)
        try:
            pixels[row] = image_io.decode_image(content, side, channels)
            return ""
        except Exception as error:  # any error of PIL's decoders, and its guard against huge images
            return image_io.describe_error(error)

    with decoding_threads() as pool:
        for row, problem in enumerate(pool.map(decode_row, range(len(samples)))):
            if problem:
                unreadable[row] = problem
            if progress is not None:
                progress(row + 1, len(samples))
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    if cache_file:
        write_cache(cache_file, images, unreadable)
    return images, unreadable


def _inspect(content: Content) -> ImageInfo:
    if isinstance(content, tuple):  # the cells of a table: only the digest has a meaning
        return ImageInfo(image_io.hash_bytes("\x1f".join(content).encode()))
    return image_io.inspect_image(content)


@contextmanager
def decoding_threads() -> Iterator[ThreadPoolExecutor]:
    """Yield a thread pool: PIL decodes without the GIL. Its warnings are silenced; the one for huge images raises."""
    with warnings.catch_warnings(), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            yield pool
        except BaseException:  # after Ctrl-C, do not wait for the remaining images
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def cache_path(names: Sequence[str], digests: Sequence[str], side: int, channels: int) -> Path:
    """Return the cache file for a set of images, named by a digest of all arguments.

    Args:
        names: of the samples.
        digests: of their encoded bytes.
        side: pixels of the decoded images.
        channels: 1 or 3.
    """
    sha = hashlib.sha256(f"{_VERSION}|{side}|{channels}".encode())
    for name, content in zip(names, digests, strict=True):
        sha.update(f"|{len(name)}|{name}|{content}".encode())
    return cache_dir() / f"{sha.hexdigest()[:32]}.safetensors"


def cache_dir() -> Path:
    """Return the folder of the cache: below $ROFL_CACHE, else below the user's cache folder."""
    import pooch

    chosen = os.environ.get("ROFL_CACHE")
    return (Path(chosen) if chosen else Path(pooch.os_cache("rofl"))) / "own"


def read_cache(path: Path) -> tuple[Tensor, dict[int, str]] | None:
    """Return the pixels (N, C, side, side) and why some rows are unreadable, or None if there is no valid file."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata, pixels = parse_json(file.metadata()["facts"]), file.get_tensor("pixels")
        if metadata["digest"] != digest({"pixels": pixels}):
            return None
        return pixels, {int(row): reason for row, reason in metadata["unreadable"].items()}
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError):
        return None


def write_cache(path: Path, pixels: Tensor, unreadable: dict[int, str]) -> None:
    """Write pixels to the cache; a full or read-only disk is ignored, since a run works without the cache.

    Args:
        path: of `cache_path`.
        pixels: (N, C, side, side) uint8.
        unreadable: the reason for each row that could not be decoded.
    """
    metadata = {"digest": digest({"pixels": pixels}), "unreadable": {str(row): why for row, why in unreadable.items()}}
    try:
        atomic.atomic_write(path, safetensors.torch.save({"pixels": pixels}, {"facts": json.dumps(metadata)}))
    except UserError:
        return
