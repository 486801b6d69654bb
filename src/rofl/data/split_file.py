"""Split files: the given labels and the client of each sample, for use in several runs.

The format is safetensors with JSON metadata; nothing is pickled.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from rofl.core.serialization import deserialize, serialize
from rofl.core.settings import Settings, rename
from rofl.core.tensors import Tensors, digest
from rofl.core.version import __version__
from rofl.data import atomic
from rofl.data.regular_file import read_regular
from rofl.data.specs import SplitSpec
from rofl.errors import UserError

_KIND = "rofl scene"  # its name in 0.1; the format has not changed
_NOBODY = -1
_AGAIN = "write it again with rofl split"


def write_split(path: Path, labels: Tensor, parts: Sequence[Tensor], truth: Tensor, spec: SplitSpec) -> None:
    """Write a new split file.

    Args:
        path: the file.
        labels: (N,) given labels.
        parts: the rows of each client.
        truth: (N,) true labels; their digest identifies the data.
        spec: the settings that the split was drawn with.

    Raises:
        UserError: the file exists, or cannot be written; an old one is not replaced, since runs may depend on it.
    """
    if path.exists():
        raise UserError(f"{path} already exists.", "another --out")
    tensors = {"labels": labels, "owner": _owner(parts, len(labels))}
    metadata = {
        "kind": _KIND,
        "rofl": __version__,
        "seed": spec.seed,
        "data": spec.data.name,
        "samples": len(truth),
        "truth": digest({"labels": truth}),
        "settings": _settings(spec),
        "digest": digest(tensors),
    }
    atomic.atomic_write(path, serialize({"scene": tensors}, metadata))


def read_split(path: Path, truth: Tensor, classes: int, spec: SplitSpec) -> tuple[Tensor, list[Tensor]]:
    """Return the given labels (N,) and the rows of each client from a split file.

    Args:
        path: the file.
        truth: (N,) true labels of the data that it is used for.
        classes: the number of classes.
        spec: the settings of the run.

    Raises:
        UserError: the file is damaged, or was written for other data or settings.
    """
    try:
        groups, metadata = deserialize(read_regular(path))
        tensors = groups["scene"]
        if metadata["kind"] != _KIND or metadata["digest"] != digest(tensors):
            raise ValueError("its content is not what was written")
        _check_metadata(path, metadata, truth, spec)
        _check_tensors(tensors, len(truth), classes, spec.clients)
    except FileNotFoundError as error:
        raise UserError(f"There is no split file {path}.", f"rofl split --out {path}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).", _AGAIN) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a split file, or damaged ({error}).", _AGAIN) from error
    return tensors["labels"], _parts(tensors["owner"], spec.clients)


def _settings(spec: SplitSpec) -> Settings:
    """Return the settings that a split depends on, except the data and the seed; a run must have the same."""
    data = spec.data
    return {
        "clients": spec.clients,
        "data.partition": data.partition,
        **{f"noise.{key}": value for key, value in spec.noise.model_dump(exclude={"on_user_data"}).items()},
        **({"data.shards": data.shards} if data.partition == "shards" else {}),
        **({"data.alpha": data.alpha} if data.partition in ("dirichlet", "bernoulli", "quantity") else {}),
        **({"data.class_probability": data.class_probability} if data.partition == "bernoulli" else {}),
        **({"data.client_classes": data.client_classes} if data.partition == "classes" else {}),
    }


def _check_metadata(path: Path, metadata: Settings, truth: Tensor, spec: SplitSpec) -> None:
    """Raise a UserError if the file was written for other data or settings."""
    name = spec.data.name
    if metadata["data"] != name:
        raise UserError(f"{path} is a split of {metadata['data']}, not of {name}.", f"data.name={metadata['data']}")
    if metadata["samples"] != len(truth):
        raise UserError(
            f"{path} has labels for {metadata['samples']} training images, and {len(truth)} are to be used.",
            "the data.train and data.validation it was written with",
        )
    if metadata["truth"] != digest({"labels": truth}):
        raise UserError(f"{path} was written for images in another order: their true labels differ.", _AGAIN)
    settings = _settings(spec)
    for key, value in (rename(*pair) for pair in metadata["settings"].items()):
        if settings.get(key) != value:
            written, wanted = (json.dumps(each).strip('"') for each in (value, settings.get(key)))
            raise UserError(f"{path} was written with {key} = {written}, not {wanted}.", f"--set {key}={written}")


def _check_tensors(tensors: Tensors, samples: int, classes: int, clients: int) -> None:
    """Raise a ValueError if labels or owners have another shape or range."""
    for name, low, high in (("labels", 0, classes), ("owner", _NOBODY, clients)):
        values = tensors[name]
        if values.dtype != torch.int64 or values.shape != (samples,):
            raise ValueError(f"{name} are not {samples} whole numbers")
        if not low <= int(values.min()) <= int(values.max()) < high:
            raise ValueError(f"{name} do not lie in {low}..{high - 1}")


def _owner(parts: Sequence[Tensor], samples: int) -> Tensor:
    """Return the client of each sample, (N,); -1 for samples of no client."""
    owner = torch.full((samples,), _NOBODY)
    for client, rows in enumerate(parts):
        owner[rows] = client
    return owner


def _parts(owner: Tensor, clients: int) -> list[Tensor]:
    """Return the sorted rows of each client."""
    sizes = torch.bincount(owner + 1, minlength=clients + 1).tolist()  # samples of no client come first
    return list(owner.argsort(stable=True).split(sizes))[1:]
