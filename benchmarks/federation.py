"""Five hospitals on one machine: real processes, TLS, keys, masks, 40 % wrong labels; one is killed, one poisons.

Ends with the accuracy of a clean local run of the same settings (`run/config.toml`) beside that of the federation, and
each site's list of suspects. Where nobody is killed and nobody poisons, both must have one digest.

    python benchmarks/federation.py --rounds 30
    python benchmarks/federation.py --sites 3 --rounds 20 --no-faults --set data.train=120    # what a round costs
"""

import argparse
import csv
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

SITES = ("north", "east", "south", "west", "centre")
KILLED, BAD = "east", "south"  # the first is killed and started again; the second sends its update times 1000
ATTACK = "scaled x1000"
WITHIN = 2.0  # points of accuracy that both may cost


def main() -> int:
    """Run both, compare, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of rofl run")
    parser.add_argument("--sites", type=int, default=len(SITES), choices=range(2, len(SITES) + 1))
    parser.add_argument("--no-faults", action="store_true", help="nobody is killed and nobody poisons")
    parser.add_argument("--out", type=Path, help="a new folder; a temporary one where absent")
    chosen = parser.parse_args()
    named_sites = SITES[: chosen.sites]
    place = chosen.out or Path(tempfile.mkdtemp(prefix="rofl-federation-"))
    place.mkdir(parents=True, exist_ok=True)
    settings = ["noise.ratio=0.4", f"clients={chosen.sites}", f"cohort={chosen.sites}", f"rounds={chosen.rounds}"]
    words = [word for each in [*settings, *chosen.set] for word in ("--set", each)]
    port = free_port()
    started: list[subprocess.Popen[bytes]] = []

    half = max(1, chosen.rounds // 2)
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}

    def rofl(name: str, *arguments: str, program: tuple[str, ...] = ("rofl",)) -> "subprocess.Popen[bytes]":
        with open(place / f"{name}.log", "ab") as log:
            command = [sys.executable, "-m", *program, *arguments]
            process = subprocess.Popen(
                command, cwd=place, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
            )
            started.append(process)
        return process

    def join(name: str) -> "subprocess.Popen[bytes]":
        where = ("--server", f"localhost:{port}", "--credentials", f"keys/sites/{name}")
        is_bad = name == BAD and not chosen.no_faults
        program = ("benchmarks.attacks.bad_program", ATTACK, str(half // 2)) if is_bad else ("rofl",)
        return rofl(name, "join", *where, "--out", f"site-{name}", program=program)

    try:
        named = [word for name in named_sites for word in ("--site", name)]
        say("making certificates and keys, and starting the coordinator")
        assert rofl("init", "serve", "--init", "keys", *named, "--host", "localhost").wait() == 0
        door = ("--credentials", "keys/server", "--address", f"127.0.0.1:{port}", "--out", "run")
        coordinator = rofl("serve", "serve", "--preset", "digits", *words, *door)
        sites = {name: join(name) for name in named_sites}
        if not chosen.no_faults:
            say(f"{BAD} poisons from round {half // 2} on")
            wait_for(lambda: len(history(place / "run")) >= half or coordinator.poll() is not None)
            say(f"kill -9 of {KILLED} in round {half + 1}, and its restart")
            sites[KILLED].send_signal(signal.SIGKILL)
            sites[KILLED].wait()
            killed = time.monotonic()
            sites[KILLED] = join(KILLED)
            wait_for(lambda: "is back" in (place / "serve.log").read_text() or coordinator.poll() is not None)
            say(f"{KILLED} is back after {time.monotonic() - killed:.1f} s")
        if coordinator.wait() != 0 or any(site.wait() for site in sites.values()):
            sys.stdout.write((place / "serve.log").read_text())
            return 1
        say("the same without a network, for comparison")
        assert rofl("local", "run", "run/config.toml", "--out", "local").wait() == 0  # with masks' integers and bounds
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
    return compare(place, named_sites, same=chosen.no_faults)


def compare(place: Path, sites: Sequence[str], same: bool) -> int:
    """Print the outcome as a table, and return the exit code.

    Args:
        place: The folder of all runs.
        sites: The names of the sites.
        same: Whether federation and local run must have one digest, and not only nearly the same accuracy.
    """
    together, local = (json.loads((place / run / "summary.json").read_text()) for run in ("run", "local"))
    print("| | accuracy | seconds a round, median | digest |\n|---|---|---|---|")
    for name, run, summary in (("federation", "run", together), ("local run", "local", local)):
        seconds = median(entry["seconds"] for entry in history(place / run))
        print(f"| {name} | {summary['test_accuracy']:.2f} % | {seconds:.2f} | {summary['digest'][:16]} |")
    left_out = sum(len(entry["dropped"]) for entry in history(place / "run"))
    print(f"\nAnswers left out on the way: {left_out}. Rounds undone: {together['rolled_back']}.")
    for event in together["warnings"]:
        if event["sign"] in ("rolled back", "set aside"):
            print(f"  {event['message']}")
    for name in sites:
        with open(place / f"site-{name}" / "suspects" / f"{name}.csv", newline="") as file:
            flags = [line["flagged"] for line in csv.DictReader(file)]
        page = place / f"site-{name}" / "report.html"
        print(f"{name}: {flags.count('yes')} of {len(flags)} labels look wrong; {page}")
    if same and together["digest"] != local["digest"]:
        say("The digests differ.")
        return 1
    return 0 if together["test_accuracy"] >= local["test_accuracy"] - WITHIN else 1


def history(run: Path) -> list[dict[str, Any]]:
    """The rounds that are done."""
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def wait_for(true: Callable[[], bool]) -> None:
    """Look again and again."""
    while not true():
        time.sleep(0.1)


def say(text: str) -> None:
    """A line that is seen at once."""
    print(text, flush=True)


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
