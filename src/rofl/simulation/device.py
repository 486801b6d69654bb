"""The devices that clients train on, and the environment of worker processes."""

import os
import sys

import torch

from rofl.core.tensors import CPU
from rofl.errors import UserError


def devices() -> list[torch.device]:
    """Return the devices to train on.

    $ROFL_DEVICE selects them (`cuda:1`, or `cuda` for all); the default is all accelerators, or the CPU.

    Raises:
        UserError: $ROFL_DEVICE names a device that does not exist.
    """
    kind = torch.accelerator.current_accelerator(check_available=True)
    accelerators = (
        [torch.device(kind.type, number) for number in range(torch.accelerator.device_count())] if kind else []
    )
    wanted = os.environ.get("ROFL_DEVICE") or (kind or CPU).type
    chosen = [device for device in [CPU, *accelerators] if wanted in (device.type, str(device))]
    if not chosen:
        names = ", ".join(map(str, [CPU, *accelerators]))
        raise UserError(f"ROFL_DEVICE is {wanted!r}, and there is no such device here.", f"one of {names}, or unset it")
    return chosen


# Activations are allocated and freed by the megabyte. glibc would return them to the kernel and allocate again in every
# step, which costs 2 to 3 % of the time (docs/decisions/0010-speed.md); other C libraries ignore these names.
_KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**32), "MALLOC_MMAP_MAX_": "0"}


def worker_env() -> dict[str, str]:
    """Return the environment of a worker process: the same module path, one thread, freed memory is kept."""
    path = os.pathsep.join(each or os.getcwd() for each in sys.path)
    return {**_KEEP_MEMORY, **os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
