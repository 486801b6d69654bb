"""What a site keeps between restarts: the agreed settings, the requests that it answered, and its clients' states.

A site answers each request for a few models only, so that repeated requests do not reveal single samples. A coordinator
that was killed repeats a round, usually with the same model, and gets the same answer. Every other model is another
question about the same samples. With masks, a sum is unmasked for one model only (`SiteMasks`).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import torch
from flwr.app import Array, ArrayRecord, RecordDict
from pydantic import TypeAdapter

from rofl.config.schema import Experiment
from rofl.core.serialization import deserialize, serialize
from rofl.data import atomic
from rofl.data.regular_file import read_regular
from rofl.data.user.names import plural
from rofl.errors import UserError
from rofl.federation.protocol import Refusal

MOST_MODELS = 5  # per request: a coordinator may be killed before its checkpoint more than once
_MAX_BYTES = 2**24  # of the file of answered requests
_ANSWERED = TypeAdapter(dict[str, list[str]])  # purpose -> questions
_T = TypeVar("_T")


@dataclass(frozen=True)
class Agreement:
    """The settings of a run as the coordinator first sent them.

    Attributes:
        settings: The settings as TOML.
        experiment: The parsed settings.
    """

    settings: str
    experiment: Experiment

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the settings, in hexadecimal."""
        return sha256(self.settings.encode()).hexdigest()

    def lines(self, masked: bool) -> Sequence[str]:
        """Return a summary of the proposed run, for the site's consent.

        Args:
            masked: Whether the site's sums are masked.

        Returns:
            One sentence for each line.
        """
        asked = self.experiment
        epochs, privacy = asked.method.get("epochs", 1), asked.privacy
        part = ", its last layer only" if asked.model.freeze else ", adapters only" if asked.model.lora else ""
        private = f"clip {privacy.clip:g}, noise {privacy.noise:g}" if privacy.clip else "off"
        return (
            f"Method {asked.method_name}, network {asked.model.name} of width {asked.model.width:g}{part}.",
            f"{plural(asked.rounds, 'round')} of {plural(epochs, 'local epoch')}, "
            f"{asked.cohort} of {plural(asked.clients, 'site')} a round.",
            f"Sums of this site are {'masked' if masked else 'not masked: the coordinator sees them'}.",
            f"Differential privacy: {private}.",
        )


class AgreementFile:
    """A file that stores the agreement, so that it survives a restart of the site.

    Args:
        path: The file; None to keep the agreement in memory only.

    Raises:
        UserError: If the file is damaged.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._settings = _read_kept(path, bytes.decode, "what was agreed on")

    @property
    def settings(self) -> str | None:
        """The agreed settings as TOML; None before the first contact."""
        return self._settings

    def save(self, agreement: Agreement) -> None:
        """Store an agreement."""
        self._settings = agreement.settings
        if self._path is not None:
            atomic.atomic_write(self._path, agreement.settings)


def _read_kept(path: Path | None, parse: Callable[[bytes], _T], what: str, most_bytes: int = 2**22) -> _T | None:
    """Read and parse a file that a site keeps between restarts.

    Args:
        path: The file; None if nothing is stored.
        parse: Parses the content of the file; raises a ValueError if the content is damaged.
        what: A description of the content, for the error message.
        most_bytes: The largest accepted size of the file.

    Returns:
        The parsed content, or None if there is no file.

    Raises:
        UserError: If the file is damaged.
    """
    if path is None or not path.exists():
        return None
    try:
        return parse(read_regular(path, most_bytes, follow=False))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged, so that {what} is not known.", "another --out") from error


class AnsweredRequests:
    """A file that stores the questions that a site has answered, by purpose.

    Args:
        path: The file; None to keep the questions in memory only.

    Raises:
        UserError: If the file is damaged.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._asked = _read_kept(path, _ANSWERED.validate_json, "what was answered", _MAX_BYTES) or {}

    def admit(self, purpose: str, question: str, most: int) -> None:
        """Store a question before it is answered.

        Args:
            purpose: The purpose of the request, such as "train 7".
            question: A hash of everything that the answer depends on.
            most: The largest number of different questions that are answered for one purpose.

        Raises:
            Refusal: If the question is new and the limit is reached.
        """
        asked = self._asked.setdefault(purpose, [])
        if question in asked:
            return
        if len(asked) >= most:
            raise Refusal(f"The coordinator asks for {purpose} with yet another model, after {len(asked)} before.")
        asked.append(question)
        if self._path is not None:
            atomic.atomic_write(self._path, json.dumps(self._asked), 0o600)


@dataclass(frozen=True)
class StateFile:
    """A file with the array records of a Flower context's state, so that they survive a SuperNode that is killed."""

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
        """Write the array records of a state; delete the file if there are none."""
        groups = {
            name: {key: torch.from_numpy(array.numpy().copy()) for key, array in record.items()}
            for name, record in records.items()
            if isinstance(record, ArrayRecord)
        }
        if groups:
            atomic.atomic_write(self.path, serialize(groups, {}))
        else:
            self.path.unlink(missing_ok=True)
