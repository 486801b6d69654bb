"""Supervisor of a program: `python supervisor.py LOG PROGRAM ARGUMENTS`.

Ends the program and all processes that it started when stdin is closed, which happens when the parent process is gone,
or when the program ends by itself. Writes the program's output to the file LOG. A full file is renamed to LOG.1, and no
others are kept, since a site can make Flower's programs print any amount. Imports nothing of rofl, so that it starts
fast.
"""

import os
import select
import signal
import subprocess
import sys
import time

_POLL = 0.2  # seconds
_GRACE = 5.0  # seconds that the program has to end after SIGTERM
_MOST = 2**23  # bytes of a log
_CHUNK = 2**16  # bytes that are written at once


def main(log: str, command: list[str]) -> int:
    """Run a program until it ends or stdin is closed, and return its exit code; 1 if it had to be killed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # SIGTERM is for the program, not for its supervisor
    said, written = os.pipe()
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT, restore_signals=True
    )
    os.close(written)
    ends = [sys.stdin.fileno(), said]
    while child.poll() is None and sys.stdin.fileno() in ends:
        _read_ready(log, ends, _POLL)
    if child.poll() is None:
        child.terminate()
    ends, deadline = [said], time.monotonic() + _GRACE
    while (child.poll() is None or _read_ready(log, ends, 0)) and time.monotonic() < deadline:
        _read_ready(log, ends, 0.02)
    code = child.poll()
    if os.getpgrp() == os.getpid():  # own process group: end processes that the program left behind
        os.killpg(0, signal.SIGKILL)
    child.kill()
    return 1 if code is None else code


def _read_ready(log: str, ends: list[int], seconds: float) -> bool:
    """Wait for input, write the program's output to its log, and return whether there was input.

    Args:
        log: The log file.
        ends: The file descriptors to read; those that are closed at the other end are removed.
        seconds: How long to wait.
    """
    if not ends:
        time.sleep(seconds)
        return False
    readable, _, _ = select.select(ends, [], [], seconds)
    for end in readable:
        text = os.read(end, _CHUNK)
        if end != sys.stdin.fileno():
            write_log(log, text)
        if not text:
            ends.remove(end)
    return bool(readable)


def write_log(log: str, text: bytes) -> None:
    """Append to a log, and rename a full log first. On a full disk the text is lost, and the program continues."""
    if not text:
        return
    try:
        if os.path.exists(log) and os.path.getsize(log) + len(text) > _MOST:
            os.replace(log, log + ".1")
        with open(log, "ab") as file:
            file.write(text)
    except OSError:
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
