"""An accelerator for tests: a device whose tensors mix with no others, as on a GPU.

Its tensors say that they are on `DEVICE` and keep their numbers in a CPU tensor inside. So whole clients run, steps
that depend on the data among them, and give the CPU's bits; whatever is made on the wrong device raises.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")  # torch knows it, needs no driver for it, and computes nothing there
_ACROSS = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)  # the ways from one device to another


class Elsewhere(Tensor):
    """A tensor on the device."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Elsewhere":
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=DEVICE
        )
        made.inner = inner
        return made

    def tolist(self) -> Any:
        return self.cpu().tolist()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


class _Accelerator(TorchDispatchMode):
    """Tensors that are made on the device, and what is moved there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})


@contextmanager
def accelerator() -> Iterator[torch.device]:
    """The device is there within the block."""
    with _Accelerator():
        yield DEVICE


def _compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation on the numbers inside, after a look at where its inputs are."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    away = any(isinstance(value, Elsewhere) for value in tensors)
    target = kwargs.get("device")
    if func not in _ACROSS and (away or target == DEVICE):
        here = [tuple(value.shape) for value in tensors if not isinstance(value, Elsewhere)]
        if here or isinstance(kwargs.get("generator"), torch.Generator):
            raise RuntimeError(f"{func} on the device was given what is on the CPU: {here or 'a generator'}")
    inner = {"device": torch.device("cpu")} if target is not None else {}
    result = func(*tree_map(_inside, args), **{**tree_map(_inside, kwargs), **inner})
    if target == DEVICE or (away and target is None):
        result = tree_map(lambda value: Elsewhere(value) if isinstance(value, Tensor) else value, result)
    return return_and_correct_aliasing(func, args, kwargs, result) if away else result


def _inside(value: Any) -> Any:
    return value.inner if isinstance(value, Elsewhere) else value
