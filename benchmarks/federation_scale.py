"""What a round costs with more and more sites: a real coordinator with keys, TLS and masks, and light sites.

    python -m benchmarks.federation_scale --sites 3 10 30 --rounds 20
    python -m benchmarks.federation_scale --sites 30 --rounds 200    # whether memory grows

Prints one line of a table for each number of sites: seconds a round, and the memory of the coordinator's processes
after 5 rounds, after each quarter of the rounds, and at the end.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.light_sites import start_sites
from rofl.federation.flower_internal.processes import free_port
from rofl.federation.issue_credentials import make_credentials

_SETTINGS = ("model.name=mlp", "model.width=0.1", "data.test=100", "method.epochs=1", "evaluate_every=10")
_EACH = 20  # samples of a site


def main() -> None:
    """Measure every number of sites."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 10, 30])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-masks", action="store_true")
    chosen = parser.parse_args()
    print("| sites | rounds | seconds a round, median | MB after round | MB at the end | left out | load |")
    print("|---|---|---|---|---|---|---|")
    for sites in chosen.sites:
        with tempfile.TemporaryDirectory(prefix="rofl-scale-") as place:
            print(measure(Path(place), sites, chosen.rounds, not chosen.no_masks), flush=True)


def measure(place: Path, sites: int, rounds: int, masks: bool) -> str:
    """Return a line of the table.

    Args:
        place: An empty folder.
        sites: How many sites there are; all take part in every round.
        rounds: How many rounds.
        masks: Whether sums are masked.
    """
    names, port = [f"site-{number}" for number in range(sites)], free_port()
    make_credentials(place / "keys", names, ["localhost"])
    settings = [*_SETTINGS, f"clients={sites}", f"cohort={sites}", f"rounds={rounds}", f"data.train={_EACH * sites}"]
    words = [word for each in settings for word in ("--set", each)]
    command = ["serve", "--preset", "digits", "--method", "plain", *words, "--address", f"127.0.0.1:{port}"]
    command += ["--credentials", "keys/server", "--out", "run", *([] if masks else ["--no-masks"])]
    with open(place / "serve.log", "ab") as log:
        coordinator = subprocess.Popen([sys.executable, "-m", "rofl", *command], cwd=place, stdout=log, stderr=log)
    start_sites(f"localhost:{port}", place / "keys", names)
    late, by_round = 0, dict[int, int]()
    wanted = sorted({min(5, rounds), *(quarter * rounds // 4 for quarter in (1, 2, 3) if quarter * rounds > 20)})
    while coordinator.poll() is None:
        time.sleep(0.5)
        done, late = len(history(place)), memory(coordinator.pid) or late
        by_round |= {index: late for index in wanted if index <= done and index not in by_round}
    assert coordinator.returncode == 0, (place / "serve.log").read_text()[-2000:]
    found = history(place)
    seconds = median(float(str(entry["seconds"])) for entry in found)
    dropped = sum(len(entry["dropped"]) for entry in found)  # type: ignore[arg-type]
    grown = ", ".join(f"{index}: {size}" for index, size in by_round.items())
    facts = (sites, len(found), f"{seconds:.2f}", grown, late, dropped, f"{os.getloadavg()[1]:.1f}")
    return f"| {' | '.join(map(str, facts))} |"


def history(place: Path) -> list[dict[str, object]]:
    """Return the rounds that are done."""
    path = place / "run" / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def memory(pid: int) -> int:
    """Return the resident memory of a process and all that it started, in MB."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    family, size = {pid}, 0
    while len(family) > size:
        size = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    total = 0
    for each in family:
        try:
            pages = int(Path(f"/proc/{each}/statm").read_text().split()[1])
        except OSError:
            continue
        total += pages * os.sysconf("SC_PAGE_SIZE")
    return total // 2**20


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
