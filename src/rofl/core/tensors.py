"""Named tensors and the few things done with them: move, add, scale, subtract, round, compare, hash."""

import hashlib
from collections.abc import Mapping

import torch

CPU = torch.device("cpu")
Tensors = dict[str, torch.Tensor]  # flat: a checkpoint, a network record and a secure-aggregation vector alike


def float_entries(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Only what may be averaged: integer buffers, such as batch norm's counter, are left out.

    >>> sorted(float_entries({"w": torch.ones(2), "steps": torch.tensor(3)}))
    ['w']
    """
    return {name: value for name, value in tensors.items() if value.is_floating_point()}


def to_device(tensors: Mapping[str, torch.Tensor], device: torch.device) -> Tensors:
    """The tensors on a device; those that are there already are not copied."""
    return {name: value.to(device) for name, value in tensors.items()}


def zeros_like(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """The neutral element of `add` for these names and shapes."""
    return {name: torch.zeros_like(value) for name, value in tensors.items()}


def add(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> Tensors:
    """Add name by name; both sides must hold the same names.

    >>> add({"w": torch.ones(2)}, {"w": torch.ones(2)})["w"].tolist()
    [2.0, 2.0]
    """
    if left.keys() != right.keys():
        raise ValueError(f"cannot add tensors of different names: {sorted(left.keys() ^ right.keys())}")
    return {name: left[name] + right[name] for name in left}


def scaled_difference(new: Mapping[str, torch.Tensor], old: Mapping[str, torch.Tensor], factor: float) -> Tensors:
    """The change times a factor, factor * (new - old), name by name; what a client sends up for Eq. 10."""
    return {name: (new[name] - old[name]) * factor for name in old}


def to_bf16(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Every float32 as the nearest bfloat16: half the bytes, the same range, a precision of 8 bits instead of 24.

    The range is why it is not float16: n_k * (w_k - w) may exceed the 65504 at which that ends.

    >>> to_bf16({"w": torch.tensor([1.001, 70000.0])})["w"]
    tensor([1.0000e+00, 7.0144e+04], dtype=torch.bfloat16)
    """
    return {
        name: value.to(torch.bfloat16) if value.dtype == torch.float32 else value for name, value in tensors.items()
    }


def round_bf16(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """What `halved` leaves of every number, in the tensors' own types."""
    return {name: value.to(tensors[name].dtype) for name, value in to_bf16(tensors).items()}


def check_like(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> str | None:
    """Why `found` may not be added to `expected`, in words, or None where it may.

    >>> check_like({"w": torch.tensor([float("nan")])}, {"w": torch.zeros(1)})
    "'w' is not finite"
    >>> check_like({"w": torch.zeros(1)}, {"w": torch.zeros(1000)})
    "'w' has shape (1,), not (1000,)"
    """
    for name in sorted(found.keys() | expected.keys()):
        if name not in found:
            return f"{name!r} is missing"
        if name not in expected:
            return f"{name!r} was not asked for"
        if found[name].shape != expected[name].shape:
            return f"{name!r} has shape {tuple(found[name].shape)}, not {tuple(expected[name].shape)}"
        if found[name].dtype != expected[name].dtype:
            return f"{name!r} is {found[name].dtype}, not {expected[name].dtype}"
        if not bool(torch.isfinite(found[name]).all()):
            return f"{name!r} is not finite"
    return None


def digest(*groups: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes; equal digests mean equal bits.

    >>> digest({"w": torch.ones(2)}) == digest({"w": torch.ones(2)})
    True
    >>> digest({"w": torch.ones(2)}) == digest({"w": torch.ones(1, 2)})
    False
    """
    sha = hashlib.sha256()
    for place, group in enumerate(groups):
        for name in sorted(group):
            value = group[name].detach().clone(memory_format=torch.contiguous_format)  # empty ones may have stride 0
            sha.update(f"{place}|{name}|{value.dtype}|{tuple(value.shape)}|".encode())
            sha.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()
