"""The sites' keys as the coordinator's registry needs them: whose number and name each has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class SiteKeys:
    """Who is who by their keys.

    Attributes:
        numbers: Each site's number by its public key, where only these sites may take part; None to believe what a
            site says about its number.
        names: Each site's name, by its number; empty to believe what a site says about its name.
        certificates: Of the sites' keys, by their number, for masks; empty without credentials.
        refresh: Called whenever connections are looked at; returns sentences for people about what has changed.
    """

    numbers: Mapping[bytes, int] | None = None
    names: Sequence[str] = ()
    certificates: Mapping[int, bytes] = field(default_factory=dict)
    refresh: Callable[[], Sequence[str]] = tuple
