"""A program that runs cells: each line on stdin names a folder, each line on stdout says how that went."""

import json
import os
import sys
import threading
from pathlib import Path

from rofl.errors import UserError
from rofl.training.run import resume


def main() -> None:
    """Do as told until stdin ends; then end, and with it whatever runs."""
    requests = sys.stdin
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")  # so that a stray print cannot pass for an answer
    sys.stdout = sys.stderr
    _die_with(os.getppid())
    for line in requests:
        request = json.loads(line)
        data_dir = Path(request["data_dir"]) if request["data_dir"] else None
        problem = ""
        try:
            resume(request["folder"], workers=request["workers"], data_dir=data_dir)
        except UserError as error:
            problem = str(error)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        answers.write(json.dumps({"problem": problem}) + "\n")
        answers.flush()


def _die_with(parent: int) -> None:
    """End when the parent does: a cell takes minutes, and nobody would be left to stop it."""

    def watch() -> None:
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
