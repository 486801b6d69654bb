"""The agreement of a site and a coordinator: settings that do not change during a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from rofl.config.schema import Experiment
from rofl.data import atomic
from rofl.data.regular_file import read_regular
from rofl.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Agreement:
    """The settings of a run as the coordinator first sent them.

    Attributes:
        settings: As TOML.
        experiment: The same, parsed.
    """

    settings: str
    experiment: Experiment

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the settings, in hexadecimal."""
        return sha256(self.settings.encode()).hexdigest()

    def lines(self, masked: bool) -> Sequence[str]:
        """Return in a few lines what the site is asked to take part in.

        Args:
            masked: Whether sums are masked.
        """
        asked = self.experiment
        epochs, privacy = asked.method.get("epochs", 1), asked.privacy
        part = ", its last layer only" if asked.model.freeze else ", adapters only" if asked.model.lora else ""
        private = f"clip {privacy.clip:g}, noise {privacy.noise:g}" if privacy.clip else "off"
        return (
            f"Method {asked.method_name}, network {asked.model.name} of width {asked.model.width:g}{part}.",
            f"{asked.rounds} rounds of {epochs} local epochs, {asked.cohort} of {asked.clients} sites a round.",
            f"Sums of this site are {'masked' if masked else 'not masked: the coordinator sees them'}.",
            f"Differential privacy: {private}.",
        )


class AgreementFile:
    """The file in which a site keeps what was agreed on, so that a restart does not forget it.

    Args:
        path: The file; None to remember it in this process only.

    Raises:
        UserError: If the file is damaged.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._settings = read_kept(path, bytes.decode, "what was agreed on")

    @property
    def settings(self) -> str | None:
        """The settings that were agreed on, as TOML; None before the first contact."""
        return self._settings

    def save(self, agreement: Agreement) -> None:
        """Keep an agreement."""
        self._settings = agreement.settings
        if self._path is not None:
            atomic.atomic_write(self._path, agreement.settings)


def read_kept(path: Path | None, parse: Callable[[bytes], T], what: str, most_bytes: int = 2**22) -> T | None:
    """Return what a site keeps in a file; None where there is no file.

    Args:
        path: The file; None where nothing is kept.
        parse: Makes it of the file's content; raises a ValueError where that is damaged.
        what: What the file tells, for the sentence about a damaged one.
        most_bytes: The largest size.

    Raises:
        UserError: If the file is damaged.
    """
    if path is None or not path.exists():
        return None
    try:
        return parse(read_regular(path, most_bytes, follow=False))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged, so that {what} is not known.", "another --out") from error
