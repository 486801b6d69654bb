"""What a site remembers when its SuperNode is killed: the client states of `context.state`, in a file."""

from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import Array, ArrayRecord, RecordDict

from rofl.core.serialization import deserialize, serialize
from rofl.data import atomic


@dataclass(frozen=True)
class StateFile:
    """A file with the records of a context's state."""

    path: Path

    def restore(self, state: RecordDict) -> None:
        """Put back what the state does not know; a damaged file is as good as none."""
        try:
            groups, _ = deserialize(self.path.read_bytes())
        except (OSError, ValueError):
            return
        if not any(isinstance(record, ArrayRecord) for record in state.values()):
            for name, tensors in groups.items():
                state[name] = ArrayRecord({key: Array(value.numpy()) for key, value in tensors.items()})

    def keep(self, state: RecordDict) -> None:
        """Write what the state holds; a method without client state leaves no file."""
        groups = {
            name: {key: torch.from_numpy(array.numpy().copy()) for key, array in record.items()}
            for name, record in state.items()
            if isinstance(record, ArrayRecord)
        }
        if groups:
            atomic.atomic_write(self.path, serialize(groups, {}))
        else:
            self.path.unlink(missing_ok=True)
