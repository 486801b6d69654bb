"""How long a federation needs to recover from faults: real processes with keys and TLS, killed one after another.

    python -m benchmarks.recovery_times --times 3

Prints seconds for each fault: all measurements, in order. Two sites train on digits with 200 images; the figures are in
docs/faults.md.
"""

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tests.federation.people import TINY, People, Person, sets, until

from rofl.federation.flower_internal.processes import free_port
from rofl.federation.issue_credentials import make_credentials

_PATIENCE = 200.0  # seconds for a recovery
_BETWEEN = 3  # rounds without a fault before the next one
NEXT, END = "to the next finished round", "to its end"


class Federation:
    """A coordinator and two sites that train for 1,000 rounds, as many as a policy allows.

    Attributes:
        seconds: The seconds that each recovery took, by fault.

    Args:
        people: Starts and ends the processes.
    """

    def __init__(self, people: People) -> None:
        self.people, self.port, self.seconds = people, free_port(), dict[str, list[float]]()
        make_credentials(people.place / "keys", ["north", "south"], ["localhost"])
        settings = sets({**TINY, "rounds": 1000})
        where = ("--credentials", "keys/server", "--address", f"127.0.0.1:{self.port}", "--out", "run")
        self.coordinator = people.rofl("serve", "serve", "--preset", "digits", *settings, *where)
        self.north, self.south = self.join("north"), self.join("south")

    def join(self, name: str) -> Person:
        """Start a site."""
        place = ("--server", f"localhost:{self.port}", "--credentials", f"keys/sites/{name}", "--out", f"site-{name}")
        return self.people.rofl(name, "join", *place)

    def resume(self) -> None:
        """Start the coordinator again."""
        self.coordinator = self.people.rofl("serve", "serve", "--resume", "run")

    def go_on(self, rounds: int = _BETWEEN) -> None:
        """Wait until some more rounds are done."""
        wanted = len(self.people.history()) + rounds
        until(lambda: len(self.people.history()) >= wanted, f"round {wanted}", _PATIENCE)

    def measure(self, fault: str, wait: Callable[[], object]) -> None:
        """Note how long it takes until `wait` returns."""
        started = time.monotonic()
        wait()
        self.seconds.setdefault(fault, []).append(time.monotonic() - started)
        print(f"{fault}: {self.seconds[fault][-1]:.1f} s", flush=True)

    def run_faults(self) -> None:
        """Cause each fault once, and wait for the recovery."""
        self.go_on()
        self.measure("a round, without a fault", lambda: self.go_on(1))
        self.north.kill()
        self.north = self.join("north")
        self.measure(f"kill -9 of a site, started again at once: {NEXT}", lambda: self.go_on(1))
        self.go_on()
        self.coordinator.kill()
        self.resume()
        self.measure(f"kill -9 of the coordinator, resumed at once: {NEXT}", lambda: self.go_on(1))
        self.go_on()
        self.coordinator.interrupt()
        self.measure(f"Ctrl-C at the coordinator: {END}", lambda: self.coordinator.code(_PATIENCE))
        self.resume()
        self.measure(f"resumed after Ctrl-C: {NEXT}", lambda: self.go_on(1))
        self.go_on()
        self.people.kill_program("rofl.federation.gateway.program")
        self.measure(f"kill -9 of the gateway: {NEXT}", lambda: self.go_on(2))  # one may be finished without it
        self.go_on()
        self.people.kill_program("flower-superlink")
        self.measure(f"kill -9 of the SuperLink: {END} of the coordinator", lambda: self.coordinator.code(_PATIENCE))
        self.resume()
        self.measure(f"resumed after that: {NEXT}", lambda: self.go_on(1))
        self.go_on()
        self.north.interrupt()
        self.measure(f"Ctrl-C at a site: {END}", lambda: self.north.code(_PATIENCE))
        self.measure(f"a site away after Ctrl-C: {NEXT}", lambda: self.go_on(1))
        self.north = self.join("north")
        self.measure("the site is started again: until it is back", lambda: self._until_all())
        self.north.kill()
        self.measure(f"kill -9 of a site that stays away: {NEXT}", lambda: self.go_on(1))
        self.measure("the next round without it", lambda: self.go_on(1))
        self.north = self.join("north")
        self._until_all()

    def _until_all(self) -> None:
        until(lambda: not self.people.history()[-1]["dropped"], "a round with both sites", _PATIENCE)


def main() -> None:
    """Cause all faults, some times over, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=3)
    times = parser.parse_args().times
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background has the processes ignore it
    with tempfile.TemporaryDirectory(prefix="rofl-recovery-") as place, People(Path(place)) as people:
        federation = Federation(people)
        for _ in range(times):
            federation.run_faults()
    print("| fault | seconds, median | all |\n|---|---|---|")
    for fault, seconds in federation.seconds.items():
        print(f"| {fault} | {median(seconds):.1f} | {', '.join(f'{each:.1f}' for each in seconds)} |")
    print(f"Load of the last five minutes: {os.getloadavg()[1]:.1f}")


if __name__ == "__main__":
    main()
