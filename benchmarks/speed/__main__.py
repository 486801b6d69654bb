"""All measurements of speed: `make bench`, or some of them: `python -m benchmarks.speed hardware_ceiling phases`.

All of them together write benchmarks/results.md. They need a quiet machine.
"""

import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks.speed import baselines, hardware_ceiling, method_overhead, phases, scaling, transport, whole_run

RESULTS = Path(__file__).parents[1] / "results.md"
MEASUREMENTS = {
    "hardware_ceiling": hardware_ceiling.measure,
    "method_overhead": method_overhead.measure,
    "baselines": baselines.measure,
    "run": whole_run.measure,
    "scaling": scaling.measure,
    "bytes": transport.measure,
    "phases": phases.measure,
}


def machine() -> str:
    """Return a line about this machine."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = names[0] if names else platform.processor()
    return f"{name}, {cores} cores, {platform.system()}, Python {platform.python_version()}, torch {torch.__version__}"


def main(wanted: list[str]) -> int:
    """Run the measurements, print them, and write results.md if all of them ran."""
    unknown = [name for name in wanted if name not in MEASUREMENTS]
    if unknown:
        print(f"There is no measurement {unknown[0]!r}; there are {', '.join(MEASUREMENTS)}.", file=sys.stderr)
        return 2
    started, sections = time.perf_counter(), []
    for number, name in enumerate(MEASUREMENTS, start=1):
        if wanted and name not in wanted:
            continue
        print(f"[{number}/{len(MEASUREMENTS)}] {name} ...", file=sys.stderr, flush=True)
        section = MEASUREMENTS[name]()
        sections.append(section)
        print(section.markdown(), end="\n\n", flush=True)
    minutes = (time.perf_counter() - started) / 60
    about = f"{datetime.now(UTC):%Y-%m-%d}: {machine()}; {minutes:.0f} minutes."
    if not wanted:
        text = ["# Speed", f"Written by `make bench` on {about}", *(section.markdown() for section in sections)]
        RESULTS.write_text("\n\n".join(text) + "\n")
    missed = [aim for section in sections for aim in section.aims if not aim.kept]
    print(f"{about} {len(missed)} aims missed.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
