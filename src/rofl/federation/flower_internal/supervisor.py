"""Keeps a program: `python keeper.py PROGRAM ARGUMENTS`.

Ends it, and all that it started, when nobody holds the other end of stdin any more, or when it ends itself.
"""

import os
import select
import signal
import subprocess
import sys
import time

_LOOK = 0.2  # seconds
_ENDING = 5.0  # seconds that the program has for a good end


def main(command: list[str]) -> int:
    """Run until either side is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the group's signal below is for the others
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, restore_signals=True)
    while child.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], _LOOK)
        if readable and not os.read(sys.stdin.fileno(), 1):
            break
    if child.poll() is None:
        child.terminate()
        deadline = time.monotonic() + _ENDING
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
    code = child.poll()
    if os.getpgrp() == os.getpid():  # the group is ours: whoever is left in it goes with us
        os.killpg(0, signal.SIGKILL)
    child.kill()
    return 1 if code is None else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
