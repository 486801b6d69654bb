"""Sites that do not answer in time, round after round: they are set aside, so that the others need not wait."""

from dataclasses import dataclass, field

PATIENCE = 2  # rounds in which a site may be late, one after the other


@dataclass
class Stragglers:
    """Counts for each site the rounds, of those that it was asked in, in which it was late.

    Attributes:
        aside: The sites that are not asked until they answer.
    """

    aside: set[int] = field(default_factory=set)
    _asked: dict[int, tuple[int, int]] = field(default_factory=dict)  # the last round, and the one before
    _late: dict[int, tuple[int, int]] = field(default_factory=dict)  # the last late round, and how many in a row

    def ask(self, client: int, index: int) -> None:
        """Note that a site is asked for something in a round."""
        last, before = self._asked.get(client, (0, 0))
        self._asked[client] = (index, last) if index != last else (last, before)

    def is_too_late(self, client: int, index: int) -> bool:
        """Note that a site did not answer in time in a round, and return whether it is to be set aside now."""
        last, count = self._late.get(client, (-1, 0))
        if last != index:
            self._late[client] = (index, count + 1 if last == self._asked.get(client, (0, 0))[1] else 1)
        if self._late[client][1] < PATIENCE or client in self.aside:
            return False
        self.aside.add(client)
        return True

    def come_back(self, client: int) -> None:
        """Ask a site again, from the next round on."""
        self.aside.discard(client)
        self._late.pop(client, None)
