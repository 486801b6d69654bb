"""Operations on dictionaries of named tensors: move, add, scale, round, compare, hash.

Model weights, updates and client states are all such flat dictionaries, as `Module.state_dict()` gives them.
"""

import hashlib
from collections.abc import Mapping

import torch

CPU = torch.device("cpu")
Tensors = dict[str, torch.Tensor]  # flat, so that it is easily saved, sent, and summed under secure aggregation


def float_entries(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Return the floating-point tensors, which may be averaged.

    Integer buffers, such as the step counter of batch norm, are left out.

    >>> sorted(float_entries({"w": torch.ones(2), "steps": torch.tensor(3)}))
    ['w']
    """
    return {name: value for name, value in tensors.items() if value.is_floating_point()}


def to_device(tensors: Mapping[str, torch.Tensor], device: torch.device) -> Tensors:
    """Return the tensors on a device; tensors that are already there are not copied."""
    return {name: value.to(device) for name, value in tensors.items()}


def zeros_like(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Return zeros of the same names, shapes and types: the neutral element of `add`."""
    return {name: torch.zeros_like(value) for name, value in tensors.items()}


def add(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> Tensors:
    """Return the sums of equally named tensors.

    Raises:
        ValueError: the two sides hold different names.

    >>> add({"w": torch.ones(2)}, {"w": torch.ones(2)})["w"].tolist()
    [2.0, 2.0]
    """
    if left.keys() != right.keys():
        raise ValueError(f"cannot add tensors of different names: {sorted(left.keys() ^ right.keys())}")
    return {name: left[name] + right[name] for name in left}


def scaled_difference(new: Mapping[str, torch.Tensor], old: Mapping[str, torch.Tensor], factor: float) -> Tensors:
    """Return factor * (new - old) of each tensor: the update that a client sends to the server for Eq. 10.

    Args:
        new: the tensors after local training; may have more names than `old`.
        old: the tensors before local training; the result has their names.
        factor: the client's weight, its number of samples n_k.
    """
    return {name: (new[name] - old[name]) * factor for name in old}


def to_bf16(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Return float32 tensors rounded to bfloat16: half the bytes, the same range, 8 bits of precision instead of 24.

    It is not float16, whose largest number is 65504: n_k * (w_k - w) may exceed that. Other types are not changed.

    >>> to_bf16({"w": torch.tensor([1.001, 70000.0])})["w"]
    tensor([1.0000e+00, 7.0144e+04], dtype=torch.bfloat16)
    """
    return {
        name: value.to(torch.bfloat16) if value.dtype == torch.float32 else value for name, value in tensors.items()
    }


def round_bf16(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Round the tensors through bfloat16 and keep their dtypes."""
    return {name: value.to(tensors[name].dtype) for name, value in to_bf16(tensors).items()}


def check_like(tensors: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> str | None:
    """Return the reason why tensors cannot be added to the expected ones, or None if they can.

    Names, shapes and types must be equal, and all numbers finite. The server checks each update with it.

    >>> check_like({"w": torch.tensor([float("nan")])}, {"w": torch.zeros(1)})
    "'w' is not finite"
    >>> check_like({"w": torch.zeros(1)}, {"w": torch.zeros(1000)})
    "'w' has shape (1,), not (1000,)"
    """
    for name in sorted(tensors.keys() | expected.keys()):
        if name not in tensors:
            return f"{name!r} is missing"
        if name not in expected:
            return f"{name!r} was not asked for"
        if tensors[name].shape != expected[name].shape:
            return f"{name!r} has shape {tuple(tensors[name].shape)}, not {tuple(expected[name].shape)}"
        if tensors[name].dtype != expected[name].dtype:
            return f"{name!r} is {tensors[name].dtype}, not {expected[name].dtype}"
        if not bool(torch.isfinite(tensors[name]).all()):
            return f"{name!r} is not finite"
    return None


def digest(*groups: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of names, types, shapes and bytes, in hexadecimal; equal digests mean equal bits.

    The order of names within a group does not matter; the order of the groups does.

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
