"""The sites' keys for the coordinator's registry: the number and the name that belong to each key."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class SiteKeys:
    """The sites' numbers and names by their keys; `refresh` reads changed files.

    Attributes:
        numbers: Each site's number by its public key, where only these sites may take part; None to believe what a
            site says about its number.
        names: Each site's name, by its number; empty to believe what a site says about its name.
        certificates: Of the sites' keys, by their number, for masks; empty without credentials.
        refused: Why a site may not take part any more, by its number.
        authority: The certificate of the federation's authority, as PEM; empty without credentials.
        refresh: Called whenever connections are looked at; returns sentences for people about what has changed.
    """

    numbers: Mapping[bytes, int] | None = None
    names: Sequence[str] = ()
    certificates: Mapping[int, bytes] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    authority: bytes = b""
    refresh: Callable[[], Sequence[str]] = tuple

    def name_of(self, client: int) -> str:
        """Return the name of a site by its number; "" where only the site itself says it."""
        return self.names[client] if 0 <= client < len(self.names) else ""
