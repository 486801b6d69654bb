"""A split on disk: the given labels and who holds which sample, to be met again by every method. No pickle."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rofl.core.renamed import rename
from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import Tensors, digest
from rofl.data import atomic
from rofl.data.specs import SplitSpec
from rofl.errors import UserError

_KIND = "rofl scene"  # as 0.1 called it: files of both versions are alike
_NOBODY = -1
_AGAIN = "write it again with rofl split"


def write_split(path: Path, labels: Tensor, parts: Sequence[Tensor], truth: Tensor, spec: SplitSpec) -> None:
    """Write a new file. An old one stays: runs that are to be resumed may depend on it."""
    if path.exists():
        raise UserError(f"{path} is there already.", "another --out")
    tensors = {"labels": labels, "owner": _owner(parts, len(labels))}
    facts = {
        "kind": _KIND,
        "rofl": version("rofl"),
        "seed": spec.seed,
        "data": spec.data.name,
        "samples": len(truth),
        "truth": digest({"labels": truth}),
        "settings": _settings(spec),
        "digest": digest(tensors),
    }
    try:
        atomic.atomic_write(path, serialize({"scene": tensors}, facts))
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}).", "another --out") from error


def read_split(path: Path, truth: Tensor, classes: int, spec: SplitSpec) -> tuple[Tensor, list[Tensor]]:
    """Labels (N,) and the rows of each client, where the file fits the data and the settings."""
    try:
        groups, facts = deserialize(path.read_bytes())
        tensors = groups["scene"]
        if facts["kind"] != _KIND or facts["digest"] != digest(tensors):
            raise ValueError("its content is not what was written")
        _check_facts(path, facts, truth, spec)
        _check_tensors(tensors, len(truth), classes, spec.clients)
    except FileNotFoundError as error:
        raise UserError(f"There is no split file {path}.", f"rofl split --out {path}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).", _AGAIN) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a split file, or damaged ({error}).", _AGAIN) from error
    return tensors["labels"], _parts(tensors["owner"], spec.clients)


def _settings(spec: SplitSpec) -> dict[str, Any]:
    """What a split is a function of, apart from the data and the seed; a run may not claim other values."""
    data = spec.data
    settings: dict[str, Any] = {"clients": spec.clients, "data.partition": data.partition}
    settings |= {f"noise.{key}": value for key, value in spec.noise.model_dump().items()}
    settings |= {"data.shards": data.shards} if data.partition == "shards" else {}
    settings |= {"data.alpha": data.alpha} if data.partition == "dirichlet" else {}
    return settings


def _check_facts(path: Path, facts: Mapping[str, Any], truth: Tensor, spec: SplitSpec) -> None:
    name = spec.data.name
    if facts["data"] != name:
        raise UserError(f"{path} is a split of {facts['data']}, not of {name}.", f"data.name={facts['data']}")
    if facts["samples"] != len(truth):
        raise UserError(
            f"{path} has labels for {facts['samples']} training images, and {len(truth)} are to be used.",
            "the data.train and data.validation it was written with",
        )
    if facts["truth"] != digest({"labels": truth}):
        raise UserError(f"{path} was written for images in another order: their true labels differ.", _AGAIN)
    ours = _settings(spec)
    for key, value in (rename(*pair) for pair in facts["settings"].items()):
        if ours.get(key) != value:
            told, other = (json.dumps(each).strip('"') for each in (value, ours.get(key)))
            raise UserError(f"{path} was written with {key} = {told}, not {other}.", f"--set {key}={told}")


def _check_tensors(tensors: Tensors, samples: int, classes: int, clients: int) -> None:
    for name, low, high in (("labels", 0, classes), ("owner", _NOBODY, clients)):
        values = tensors[name]
        if values.dtype != torch.int64 or values.shape != (samples,):
            raise ValueError(f"{name} are not {samples} whole numbers")
        if not low <= int(values.min()) <= int(values.max()) < high:
            raise ValueError(f"{name} do not lie in {low}..{high - 1}")


def _owner(parts: Sequence[Tensor], samples: int) -> Tensor:
    """The client of each sample, (N,): it cannot give a sample to two of them."""
    owner = torch.full((samples,), _NOBODY)
    for client, rows in enumerate(parts):
        owner[rows] = client
    return owner


def _parts(owner: Tensor, clients: int) -> list[Tensor]:
    """The sorted rows of each client."""
    sizes = torch.bincount(owner + 1, minlength=clients + 1).tolist()  # nobody's come first
    return list(owner.argsort(stable=True).split(sizes))[1:]
