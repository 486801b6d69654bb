"""A worker process: `python -m rofl.simulation.worker PIPE DATA BROADCAST`, three inherited descriptors.

Started as a program of its own rather than forked, so that a caller's script needs no `__main__` guard and no thread
of the caller is cut in two. It ends when the other end of its pipe is gone, however the parent ended.
"""

import sys
from multiprocessing.connection import Connection

import torch

from rofl.simulation.executor import ClientExecutor
from rofl.simulation.shared_memory import attach


def main(pipe: int, data: int, broadcast: int) -> None:
    """Do jobs until nobody asks any more."""
    torch.set_num_threads(1)
    connection = Connection(pipe)
    try:
        task, data_layout, broadcast_layout, device = connection.recv()  # from our own parent, over a private pipe
        bench = ClientExecutor(task, attach(data, data_layout), attach(broadcast, broadcast_layout), device)
        while True:
            connection.send_bytes(bench.do(connection.recv_bytes()))
    except (EOFError, OSError):
        return


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
