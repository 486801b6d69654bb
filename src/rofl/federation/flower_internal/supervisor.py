"""Supervises a program: `python supervisor.py PROGRAM ARGUMENTS`.

Ends the program and everything that it started when stdin is closed, which happens when the parent process is gone,
or when the program ends by itself. Imports nothing of rofl, so that it starts fast.
"""

import os
import select
import signal
import subprocess
import sys
import time

_POLL = 0.2  # seconds
_GRACE = 5.0  # seconds that the program has to end after SIGTERM


def main(command: list[str]) -> int:
    """Run a program until it ends or stdin is closed, and return its exit code; 1 if it had to be killed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is for the program, not for its supervisor
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, restore_signals=True)
    while child.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], _POLL)
        if readable and not os.read(sys.stdin.fileno(), 1):
            break
    if child.poll() is None:
        child.terminate()
        deadline = time.monotonic() + _GRACE
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
    code = child.poll()
    if os.getpgrp() == os.getpid():  # our own process group: end what the program left behind
        os.killpg(0, signal.SIGKILL)
    child.kill()
    return 1 if code is None else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
