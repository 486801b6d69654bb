"""A worker process that runs table cells: a request per line on stdin, an answer per line on stdout, both JSON."""

import json
import os
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

from rofl.errors import UserError
from rofl.reproduce.cell_usage import recorded_usage
from rofl.training.runner import resume


def main() -> None:
    """Run the requested cells one after the other, until stdin ends."""
    requests = sys.stdin
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")  # a stray print must not be read as an answer
    sys.stdout = sys.stderr
    _exit_with(os.getppid())
    for line in requests:
        request = json.loads(line)
        data_dir = Path(request["data_dir"]) if request["data_dir"] else None
        problem = ""
        try:
            with nullcontext() if request["workers"] else recorded_usage(Path(request["folder"])):
                resume(request["folder"], workers=request["workers"], data_dir=data_dir)
        except UserError as error:
            problem = str(error)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        answers.write(json.dumps({"problem": problem}) + "\n")
        answers.flush()


def _exit_with(parent: int) -> None:
    """Watch the parent process in a thread, and exit when it ends: a cell may run for hours."""

    def watch() -> None:
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
