"""The resource usage of a cell: memory, share of a core, and the Ray node that it ran on."""

import ctypes
import gc
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rofl.core.tensors import CPU
from rofl.data.atomic import atomic_write
from rofl.data.regular_file import read_regular
from rofl.simulation.device import devices

USAGE_FILE = "cell.json"  # in the run folder of a cell
_MAX_BYTES = 10_000
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # Linux, proc(5): the peak restarts


class CellUsage(BaseModel):
    """The resource usage of a cell."""

    model_config = ConfigDict(frozen=True)

    memory: int | None = Field(None, ge=0)  # peak memory of its process in bytes, above its start; None: unknown
    core_share: float | None = Field(None, gt=0)  # CPU time over elapsed time, at most 1; None on a GPU, or if unknown
    node: str = ""  # the Ray node; "" if it ran without Ray


@contextmanager
def recorded_usage(folder: Path, node: str = "") -> Iterator[None]:
    """Measure the resource usage of a block in this process, and write it to the run folder if the block succeeds.

    Memory is measured on Linux only; other processes do not count.

    Args:
        folder: The run folder.
        node: The name of this Ray node.
    """
    before = _restart_peak()
    started, cpu_before = time.perf_counter(), time.process_time()
    yield
    elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu_before
    peak = _status("VmHWM")
    memory = None if before is None or peak is None else max(peak - before, 0)
    share = min(cpu / elapsed, 1.0) if cpu and elapsed and CPU in devices() else None
    atomic_write(
        folder / USAGE_FILE, CellUsage(memory=memory, core_share=share, node=node).model_dump_json(indent=1) + "\n"
    )


def read_usage(folder: Path) -> CellUsage:
    """Return the resource usage of a cell; all unknown if the file is missing or damaged."""
    try:
        return CellUsage.model_validate_json(read_regular(folder / USAGE_FILE, _MAX_BYTES, follow=False))
    except (OSError, ValidationError):
        return CellUsage()


def _restart_peak() -> int | None:
    """Reset the peak memory of the process and return its current memory in bytes; None if not supported."""
    gc.collect()
    with suppress(OSError, AttributeError):  # other C libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)  # memory of earlier cells must not count
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return None
    return _status("VmRSS")


def _status(name: str) -> int | None:
    """Return an entry of the process's status in bytes; None if there is none."""
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(), flags=re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
