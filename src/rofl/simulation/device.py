"""The devices that clients train on, and the environment of processes that train."""

import os
import sys

import torch

from rofl.core.tensors import CPU
from rofl.errors import UserError


def devices() -> list[torch.device]:
    """Return the devices to use.

    These are the ones that $ROFL_DEVICE names (`cuda:1`, or `cuda` for all), else all accelerators, else the CPU.

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
        raise UserError(f"ROFL_DEVICE is {wanted!r}, and there is no such device here.", f"one of {names}, or none")
    return chosen


# What a network computes on the way comes and goes by the megabyte. glibc would hand it back to the kernel and ask anew
# in every step, for 2 to 3 % of the time (docs/decisions/0010-speed.md); other C libraries do not read these names.
_KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**32), "MALLOC_MMAP_MAX_": "0"}


def worker_env() -> dict[str, str]:
    """Return the environment of a process that trains: this module path, one thread, memory is kept."""
    path = os.pathsep.join(each or os.getcwd() for each in sys.path)
    return {**_KEEP_MEMORY, **os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
