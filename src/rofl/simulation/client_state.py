"""Storage for what each client keeps between its rounds."""

from collections.abc import Mapping
from pathlib import Path

from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import Tensors
from rofl.data import atomic
from rofl.data.regular_file import read_regular
from rofl.errors import UserError


class ClientStateStore:
    """Client states, in memory or in a folder: one file per client and round.

    A round's states are new files beside the old ones, so that a checkpoint, which names the round of each client's
    state, stays true until the next one is written; `prune` then removes what no checkpoint needs.
    """

    def __init__(self, folder: Path | None = None, rounds: Mapping[int, int] | None = None) -> None:
        self.folder = folder
        self.rounds = dict(rounds or {})  # client -> round of its state
        self._memory: dict[int, Tensors] = {}

    def load(self, client: int) -> Tensors:
        """Return the client's state; {} where it has none.

        Raises:
            UserError: its file is missing or damaged.
        """
        if client not in self.rounds:
            return {}
        if self.folder is None:
            return self._memory[client]
        try:
            return deserialize(read_regular(self._path(client), follow=False))[0]["state"]
        except (OSError, ValueError, KeyError) as error:
            problem = f"{self._path(client)} is gone or damaged ({type(error).__name__})."
            raise UserError(problem, "start the run again") from error

    def save(self, client: int, index: int, state: Tensors) -> None:
        """Store a client's state; an empty one is not stored.

        Args:
            client: the client's number.
            index: the round that returned the state.
            state: the tensors to keep.
        """
        if not state:
            self.rounds.pop(client, None)
            return
        self.rounds[client] = index
        if self.folder is None:
            self._memory[client] = state
        else:
            atomic.atomic_write(self._path(client), serialize({"state": state}, {}))

    def prune(self) -> None:
        """Remove files of earlier rounds; call it after a checkpoint."""
        if self.folder is not None and self.folder.is_dir():
            wanted = {self._path(client) for client in self.rounds}
            for path in set(self.folder.iterdir()) - wanted:
                path.unlink()

    def _path(self, client: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{client}-{self.rounds[client]}.safetensors"
