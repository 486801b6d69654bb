"""A worker process: `python -m rofl.simulation.worker PIPE DATA BROADCAST`, three inherited file descriptors.

It is a separate program rather than a fork, so a caller's script needs no `__main__` guard and no thread is duplicated.
It exits when the other end of its pipe is closed, however the parent ended.
"""

import sys
from multiprocessing.connection import Connection

import torch

from rofl.models.model_registry import MODELS
from rofl.simulation.executor import ClientExecutor
from rofl.simulation.shared_memory import attach


def main(pipe: int, data: int, broadcast: int) -> None:
    """Execute jobs until the pipe is closed.

    Args:
        pipe: a duplex connection to the parent, for the configuration, jobs and results.
        data: shared memory with images and labels.
        broadcast: shared memory with the server state.
    """
    torch.set_num_threads(1)
    connection = Connection(pipe)
    try:
        # Unpickled: it comes from our own parent over a private pipe.
        config, model_factory, data_layout, broadcast_layout, device = connection.recv()
        MODELS.setdefault(config.network.name, model_factory)  # the parent may have registered it at run time
        executor = ClientExecutor(config, attach(data, data_layout), attach(broadcast, broadcast_layout), device)
        while True:
            connection.send_bytes(executor.execute(connection.recv_bytes()))
    except (EOFError, OSError):
        return


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
