"""A site's persistent record of the masked sums that it has sent, so that no two of them can be compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rofl.errors import UserError
from rofl.federation.masking.peers import MaskSession

_SAME_LABELS = ("noise", "report")  # sums at the end of a run that add up to the same counts of labels
_OPEN = 4  # sessions that may still be unmasked
_ROUNDS = 100  # that are remembered; a coordinator that was killed goes back to its checkpoint, and no further
_SESSIONS = 100  # in which a sum may be asked for: a coordinator may be killed before it has one


@dataclass
class MaskMemory:
    """The sums of a run that a site took part in; those of rounds long over are forgotten, and refused.

    Attributes:
        used: What each session in which a message was made is for, such as "train 7", by the session's name, the
            newest last.
        oldest: The first round that is remembered: sums of those before it are refused.
        keys: The public keys of the sites of the last sessions, by the session's name and the site's number.
        contexts: `MaskSession.context` of each of these sessions, in hexadecimal.
        questions: What was asked in each of these sessions: a hash in hexadecimal.
        revealed: For each purpose the sites whose sum was unmasked: no other set of sites will be.
        answered: For each of these purposes what was asked: nothing else will be answered.
        sets: The sites of the first sum that was unmasked, by its purpose, and those of the first one that differs.
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
        """The name of the newest session; empty where there was none."""
        return next(reversed(self.used), "")

    def check(self) -> None:
        """Raise a ValueError where a file brought something else than this class holds."""
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
        """Note that a message was made, and forget sessions and rounds that are long over."""
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
        """Note that the sum of a session is unmasked over some sites."""
        purpose = self.used[name]
        self.revealed[purpose], self.answered[purpose] = sites, self.questions[name]
        if len(self.sets) < 2 and sites not in self.sets.values():
            self.sets[purpose] = sites

    def check_purpose(self, purpose: str) -> None:
        """Refuse a sum of a round long over, or one that was asked for again and again."""
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
            purpose: What the sum is.
            sites: Those that are in it.
            same_sites: Whether all sums of a run must be over the same sites.
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
    """Return the round of a purpose such as "train 7"; None of those at the end of a run."""
    number = purpose.rpartition(" ")[2]
    return int(number) if number.isdecimal() else None
