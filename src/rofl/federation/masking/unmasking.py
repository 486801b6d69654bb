"""The coordinator's side of secure aggregation: from masked sums and shares of seeds to the sum over the sites."""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import RecordDict

from rofl.federation.masking.mask_messages import MaskedSums, from_vector, get_shares, put_shares
from rofl.federation.masking.mask_stream import add_mask
from rofl.federation.masking.peers import NAME_BYTES, MaskSession, Peer
from rofl.federation.masking.seed_shares import combine_shares, cut


def new_session(peers: Sequence[Peer]) -> MaskSession:
    """Return a session for a sum over some sites, with a name that no other session has."""
    return MaskSession(secrets.token_bytes(NAME_BYTES), tuple(sorted(peers, key=lambda peer: peer.client)))


@dataclass
class MaskedTotal:
    """One sum on its way: masked sums arrive, then shares, and when there are enough the sum can be had.

    Attributes:
        session: Its sites.
        sums: What arrived, by site.
        problems: Why a site's message cannot be used.
    """

    session: MaskSession
    sums: dict[int, MaskedSums] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)
    _shares: dict[int, dict[int, list[bytes]]] = field(default_factory=dict)  # from -> of -> of each lost seed
    _seeds: dict[tuple[int, int], bytes] = field(default_factory=dict)  # what was put together: of, shared with

    def take_replies(self, replies: Mapping[int, RecordDict | str]) -> None:
        """Take in what the sites sent, or why there is nothing; all that count have the same form.

        Args:
            replies: By site.
        """
        for client in self.session.clients:
            reply = replies.get(client, "it did not answer")
            try:
                if isinstance(reply, str):
                    raise ValueError(reply)
                self.sums[client] = MaskedSums.decode(reply, len(self.session.peers))
            except ValueError as error:
                self.problems[client] = str(error)
        forms = Counter((each.form, len(each.vector)) for each in self.sums.values())
        for client, each in list(self.sums.items()):
            if (each.form, len(each.vector)) != forms.most_common(1)[0][0]:
                self.problems[client] = "its sums have another form than those of the other sites"
                del self.sums[client]

    @property
    def arrived(self) -> list[int]:
        """The sites whose sums are added, in order."""
        return sorted(self.sums)

    @property
    def is_enough(self) -> bool:
        """Whether so many sums arrived that sites will help to unmask them."""
        return len(self.sums) >= self.session.threshold

    def unmask_requests(self) -> dict[int, RecordDict]:
        """Return the request to each site for its shares of the seeds of all masks that do not cancel."""
        place = {client: number for number, client in enumerate(self.session.clients)}
        return {
            receiver: put_shares(
                {sender: each.shares[place[receiver]] for sender, each in self.sums.items()},
                self.session.name,
                self.arrived,
            )
            for receiver in self.arrived
        }

    def take_shares(self, client: int, reply: RecordDict | str) -> str | None:
        """Take in a site's shares; return why they cannot be used, or None where they can."""
        lost = len(self.session.peers) - len(self.sums)
        try:
            if isinstance(reply, str):
                raise ValueError(reply)
            shares, session, _ = get_shares(reply)
            if session != self.session.name or sorted(shares) != self.arrived:
                raise ValueError("it has shares of another sum")
            none = [b""] * (1 + lost)  # of a sender whose shares this site could not read
            self._shares[client] = {sender: cut(text, 1 + lost) if text else none for sender, text in shares.items()}
        except ValueError as error:
            return str(error)
        return None

    def total(self) -> RecordDict | None:
        """Return the sum as a message, or None while there are not enough right shares.

        Raises:
            ValueError: If the sum makes no sense: a site did not mask it as it should have.
        """
        if len(self._shares) < self.session.threshold:
            return None
        places = {client: number for number, client in enumerate(self.session.clients)}
        missing = [client for client in self.session.clients if client not in self.sums]
        for sender, each in self.sums.items():
            for number, other in enumerate([sender, *missing]):
                if (sender, other) not in self._seeds:
                    shares = {places[client]: found[sender][number] for client, found in self._shares.items()}
                    seed = combine_shares(shares, len(places), each.commitments[places[other]])
                    if seed is not None:
                        self._seeds[sender, other] = seed
        if len(self._seeds) < len(self.sums) * (1 + len(missing)):
            return None
        forms = next(iter(self.sums.values())).form
        total = np.zeros(len(next(iter(self.sums.values())).vector), dtype=np.int64)
        for each in self.sums.values():
            total += each.vector
        for (sender, other), seed in self._seeds.items():
            add_mask(total, seed, -1 if sender <= other else 1)
        return from_vector(forms, total)

    def senders_of_wrong_shares(self) -> list[int]:
        """Return the sites whose seeds cannot be put together, although there are more shares of them than needed.

        A site that reveals wrong shares cannot cause that: the others' are enough. So it is the site that dealt them.
        """
        if len(self._shares) <= self.session.threshold:
            return []
        missing = [client for client in self.session.clients if client not in self.sums]
        seeds = {sender: [(sender, other) for other in [sender, *missing]] for sender in self.sums}
        return [sender for sender, pairs in seeds.items() if any(pair not in self._seeds for pair in pairs)]
