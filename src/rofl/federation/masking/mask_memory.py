"""A site's persistent record of its masked sums, so that no two comparable sums are unmasked."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rofl.errors import UserError
from rofl.federation.masking.peers import MaskSession

_SAME_LABELS = ("noise", "report")  # final sums whose tables add up to the same counts of labels
_OPEN = 4  # newest sessions that may still be unmasked
_ROUNDS = 100  # rounds to remember; a coordinator that was killed goes back only to its checkpoint
_SESSIONS = 100  # sessions per sum: a coordinator may be killed before it has the sum


@dataclass
class MaskMemory:
    """The masked sums of a run that a site took part in; sums of old rounds are forgotten, and then refused.

    Attributes:
        used: The purpose of each session in which a message was made, such as "train 7", by session name; newest last.
        oldest: The first remembered round; sums of earlier rounds are refused.
        keys: The public keys of the sites of the last sessions, by session name and site number.
        contexts: `MaskSession.context` of each of these sessions, in hexadecimal.
        questions: The hash of the question in each of these sessions, in hexadecimal.
        revealed: The sites of the unmasked sum for each purpose; a sum over other sites is refused.
        answered: The question of the unmasked sum for each purpose; any other question is refused.
        sets: The sites of the first unmasked sum, by purpose, and those of the first later sum over other sites.
    """

    used: dict[str, str] = field(default_factory=dict)
    oldest: int = 0
    keys: dict[str, dict[int, str]] = field(default_factory=dict)
    contexts: dict[str, str] = field(default_factory=dict)
    questions: dict[str, str] = field(default_factory=dict)
    revealed: dict[str, list[int]] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    sets: dict[str, list[int]] = field(default_factory=dict)

    @property
    def newest(self) -> str:
        """The name of the newest session; empty if there was none."""
        return next(reversed(self.used), "")

    def check(self) -> None:
        """Raise a ValueError if fields that were read from a file have wrong types or do not fit together."""
        if not all(isinstance(each, list) for each in (*self.sets.values(), *self.revealed.values())):
            raise ValueError("its sites cannot be read")
        texts: list[Mapping[str, str]] = [self.used, self.contexts, self.questions, self.answered]
        if not all(isinstance(text, str) for each in texts for text in each.values()):
            raise ValueError("its purposes cannot be read")
        if type(self.oldest) is not int:
            raise ValueError("its rounds cannot be read")
        known = set(self.keys)
        if not known == set(self.contexts) == set(self.questions) or not known <= set(self.used):
            raise ValueError("its purposes cannot be read")
        if set(self.revealed) != set(self.answered):
            raise ValueError("its purposes cannot be read")
        for key in [*self.contexts.values(), *(key for keys in self.keys.values() for key in keys.values())]:
            bytes.fromhex(key)

    def begin(self, session: MaskSession, purpose: str) -> None:
        """Record that a message was made, and forget old sessions and rounds."""
        name = session.name.hex()
        self.used[name] = purpose
        self.keys[name] = {peer.client: peer.key.hex() for peer in session.peers}
        self.contexts[name], self.questions[name] = session.context(purpose).hex(), session.asked
        self.oldest = max(self.oldest, (_round(purpose) or 0) - _ROUNDS)
        for other in [other for other in self.answered if self._is_over(other)]:
            del self.revealed[other], self.answered[other]
        self.used = {each: other for each, other in self.used.items() if not self._is_over(other)}
        kept = [each for each in self.keys if each in self.used][-_OPEN:]
        for old in set(self.keys) - set(kept):
            del self.keys[old], self.contexts[old], self.questions[old]

    def reveal(self, name: str, sites: list[int]) -> None:
        """Record that the sum of a session is unmasked over some sites."""
        purpose = self.used[name]
        self.revealed[purpose], self.answered[purpose] = sites, self.questions[name]
        if len(self.sets) < 2 and sites not in self.sets.values():
            self.sets[purpose] = sites

    def check_purpose(self, purpose: str) -> None:
        """Refuse a sum of an old round, or one that was requested too often."""
        if self._is_over(purpose):
            raise UserError(f"The coordinator asks for {purpose}, and rounds before {self.oldest} are long over.")
        if list(self.used.values()).count(purpose) >= _SESSIONS:
            raise UserError(f"The coordinator asks for {purpose} again and again.")

    def check_question(self, purpose: str, question: str) -> None:
        """Refuse a question other than the one that was answered for the same purpose."""
        if self.answered.get(purpose, question) != question:
            problem = "with another model than before, or from another client state"
            raise UserError(f"The coordinator asks for another sum for {purpose}, {problem}.")

    def check_sites(self, purpose: str, sites: list[int], same_sites: bool) -> None:
        """Refuse a sum over other sites than an earlier one with which it could be compared.

        Args:
            purpose: The purpose of the sum.
            sites: The sites in the sum.
            same_sites: Whether all sums of a run must be over the same sites.

        Raises:
            UserError: If the sum is refused.
        """
        problem = f"The coordinator asks for another sum for {purpose}, of other sites than before"
        if self.revealed.get(purpose, sites) != sites:
            raise UserError(f"{problem}.")
        before = self.sets if same_sites else {}
        if purpose in _SAME_LABELS:
            before = {**before, **{other: self.revealed[other] for other in _SAME_LABELS if other in self.revealed}}
        for other, earlier in before.items():
            if earlier != sites:
                raise UserError(f"{problem} for {other}.")

    def _is_over(self, purpose: str) -> bool:
        number = _round(purpose)
        return number is not None and number < self.oldest


def _round(purpose: str) -> int | None:
    """Return the round of a purpose such as "train 7"; None for sums at the end of a run."""
    number = purpose.rpartition(" ")[2]
    return int(number) if number.isdecimal() else None
