"""Run presets on real images, keep what came out, and write docs/results.md from it.

    python -m benchmarks.cells run cifar10-lite --method rofl-plus --noise "symmetric 0.4" --seed 0
    python -m benchmarks.cells write                                # tables and curves, from the records

A run that was interrupted goes on where it stopped. Records are in benchmarks/records/cells.
"""

import argparse
import os
import platform
import resource
from pathlib import Path

import rofl
from benchmarks.cells.curves import curves_svg
from benchmarks.cells.record import Cell, cell_of, read_cells, write_cell
from benchmarks.cells.tables import METHODS, accuracy_table, cell_table, time_table
from rofl.data.atomic import atomic_write
from rofl.errors import UserError
from rofl.simulation.worker_pool import default_workers

PAGE = Path("docs/results.md")
PICTURES = Path("docs/images")
RUNS = Path("runs/cells")
BEGIN, END = "<!-- begin: python -m benchmarks.cells write -->", "<!-- end -->"
_CURVES_AT = "symmetric 0.4"


def processor() -> str:
    """Return the name of the processor and the number of cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def run_cell(preset: str, method: str, noise: str, seed: int, workers: int | None, beside: str) -> Cell:
    """Run a cell, or what is left of it, and return its record.

    Args:
        preset: The preset.
        method: The method.
        noise: Kind and ratio, or "" for the preset's own.
        seed: The seed.
        workers: Client processes; None for one per core.
        beside: What else runs on the machine.
    """
    changes: dict[str, object] = {"method": method, "seed": seed}
    words = [f"rofl run {preset} --method {method}"]
    if noise:
        kind, ratio = noise.split()
        changes |= {"noise__kind": kind, "noise__ratio": float(ratio)}
        words += [f"--set noise.kind={kind} --set noise.ratio={ratio}"]
    experiment = rofl.preset(preset, **changes)
    drawn = experiment.noise
    title = noise or (f"human {drawn.labels}" if drawn.kind == "human" else f"{drawn.kind} {drawn.ratio:g}")
    folder = RUNS / f"{preset}-{title}-{method}-{seed}".replace(" ", "-")
    before = _cpu_seconds()
    run = rofl.resume(folder, workers=workers) if folder.exists() else rofl.run(experiment, folder, workers=workers)
    spent = _cpu_seconds() - before
    count = default_workers() if workers is None else workers
    command = " ".join([*words, f"--seed {seed}"])
    return cell_of(run, title, command, spent, count, f"{processor()}; {beside}")


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def write_page() -> None:
    """Write the tables into docs/results.md, and a picture for each preset that has curves of several methods."""
    cells = read_cells()
    parts = []
    for preset in sorted({cell.preset for cell in cells}):
        own = [cell for cell in cells if cell.preset == preset]
        at = [cell for cell in own if cell.noise == _CURVES_AT and cell.seed == 0]
        first = own[0]
        parts.append(f"**{preset}.** {first.machine}; `{first.command}` and so on.\n\n{accuracy_table(own)}")
        if len(at) > 1:
            picture = PICTURES / f"{preset}-curves.svg"
            ordered = sorted(at, key=lambda cell: METHODS.index(cell.method) if cell.method in METHODS else 99)
            atomic_write(picture, curves_svg(ordered, f"{preset}, {_CURVES_AT}"))
            parts.append(f"![Test accuracy by round]({picture.relative_to(PAGE.parent)})")
            about = f"Core seconds until an accuracy is first reached at {_CURVES_AT}, in proportion to the rounds:"
            parts.append(f"{about}\n\n{time_table(at)}")
        parts.append(cell_table(own))
    before, mark, rest = PAGE.read_text().partition(BEGIN)
    if not mark:
        raise UserError(f"{PAGE} has no line {BEGIN!r}.")
    tables = "\n\n".join(parts)
    atomic_write(PAGE, f"{before}{BEGIN}\n{tables}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    """Run or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run a cell, and keep its record")
    runs.add_argument("preset")
    runs.add_argument("--method", default="rofl-plus")
    runs.add_argument("--noise", default="", help='such as "symmetric 0.4"; as the preset has it where empty')
    runs.add_argument("--seed", type=int, default=0)
    runs.add_argument("--workers", type=int, default=None)
    runs.add_argument("--beside", default="nothing else ran", help="what else runs on the machine, for the record")
    commands.add_parser("write", help=f"write the tables into {PAGE}, and the pictures")
    options = parser.parse_args()
    if options.command == "write":
        write_page()
        return
    cell = run_cell(options.preset, options.method, options.noise, options.seed, options.workers, options.beside)
    print(f"{write_cell(cell)}: {cell.accuracy:.2f} %, {cell.seconds:.0f} s")


if __name__ == "__main__":
    main()
