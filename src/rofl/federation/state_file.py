"""A file that keeps the client states of `context.state`, so that they outlive a SuperNode that is killed."""

from dataclasses import dataclass
from pathlib import Path

import torch
from flwr.app import Array, ArrayRecord, RecordDict

from rofl.core.serialization import deserialize, serialize
from rofl.data import atomic
from rofl.data.regular_file import read_regular


@dataclass(frozen=True)
class StateFile:
    """A file with the array records of a Flower context's state."""

    path: Path

    def load_into(self, records: RecordDict) -> None:
        """Add the file's records to a state that has none; a missing or damaged file adds nothing."""
        try:
            groups, _ = deserialize(read_regular(self.path, follow=False))
        except (OSError, ValueError):
            return
        if not any(isinstance(record, ArrayRecord) for record in records.values()):
            for name, tensors in groups.items():
                records[name] = ArrayRecord({key: Array(value.numpy()) for key, value in tensors.items()})

    def save(self, records: RecordDict) -> None:
        """Write the records of a state; a method without client state leaves no file."""
        groups = {
            name: {key: torch.from_numpy(array.numpy().copy()) for key, array in record.items()}
            for name, record in records.items()
            if isinstance(record, ArrayRecord)
        }
        if groups:
            atomic.atomic_write(self.path, serialize(groups, {}))
        else:
            self.path.unlink(missing_ok=True)
