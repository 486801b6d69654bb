"""The coordinator's side of secure aggregation: recover the sum over sites from masked sums and shares of seeds."""

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import RecordDict

from rofl.federation.masking.mask_messages import MaskedSums, from_vector, get_shares, put_shares
from rofl.federation.masking.peers import NAME_BYTES, MaskSession, Peer
from rofl.federation.masking.seeds import MARK_BYTES, add_mask, combine_shares, mark_share, unpack_shares


def new_session(peers: Sequence[Peer]) -> MaskSession:
    """Return a new session for a sum over some sites, with a random name."""
    return MaskSession(secrets.token_bytes(NAME_BYTES), tuple(sorted(peers, key=lambda peer: peer.client)))


@dataclass
class MaskedTotal:
    """Collects masked sums, then shares, and returns the sum once there are enough shares.

    Attributes:
        session: The session of the sum.
        sums: The masked sums that arrived, by site.
        problems: Why a site's message cannot be used, by site.
    """

    session: MaskSession
    sums: dict[int, MaskedSums] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)
    _shares: dict[int, dict[int, list[bytes]]] = field(default_factory=dict)  # receiver, dealer -> shares; b"" if wrong
    _seeds: dict[tuple[int, int], bytes] = field(default_factory=dict)  # recovered seeds by (site, peer of the mask)

    def take_replies(self, replies: Mapping[int, RecordDict | str]) -> None:
        """Decode the sites' replies; keep those that have the most common form.

        Args:
            replies: The reply of each site, or the reason why there is none.
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
        """The sites whose sums are in the total, in order."""
        return sorted(self.sums)

    @property
    def is_enough(self) -> bool:
        """Whether enough sums arrived for the sites to help unmask them."""
        return len(self.sums) >= self.session.threshold

    def unmask_requests(self) -> dict[int, RecordDict]:
        """Return the request to each site for its shares of the seeds of masks that do not cancel."""
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
        """Store a site's shares whose marks are right; return why the reply cannot be used, or None."""
        try:
            if isinstance(reply, str):
                raise ValueError(reply)
            shares, session, _ = get_shares(reply)
            if session != self.session.name or sorted(shares) != self.arrived:
                raise ValueError("it has shares of another sum")
            self._shares[client] = {sender: self._right(client, sender, text) for sender, text in shares.items()}
        except ValueError as error:
            return str(error)
        return None

    def total(self) -> RecordDict | None:
        """Return the sum as a message, or None while there are too few right shares.

        Raises:
            ValueError: If the sum is impossible, because a site did not mask it correctly.
        """
        if len(self._shares) < self.session.threshold:
            return None
        places = self._places
        for sender, each in self.sums.items():
            for number, other in enumerate(self._seeds_of(sender)):
                if (sender, other) not in self._seeds:
                    shares = self._found(sender, number)
                    seed = combine_shares(shares, len(places), each.commitments[places[other]])
                    if seed is not None:
                        self._seeds[sender, other] = seed
        if len(self._seeds) < sum(len(self._seeds_of(sender)) for sender in self.sums):
            return None
        forms = next(iter(self.sums.values())).form
        total = np.zeros(len(next(iter(self.sums.values())).vector), dtype=np.int64)
        for each in self.sums.values():
            total += each.vector
        for (sender, other), seed in self._seeds.items():
            add_mask(total, seed, -1 if sender <= other else 1)
        return from_vector(forms, total)

    @property
    def is_spoilt(self) -> bool:
        """Whether enough sites sent shares for a sum, so that a missing sum means wrong shares."""
        return len(self._shares) >= self.session.threshold

    def senders_of_wrong_shares(self) -> list[int]:
        """Return the sites that dealt wrong shares, if they can be determined.

        They can if a majority of a site's shares are as it dealt them and do not give the seed that it committed to.
        They can also if all sites answered, because half of the sites would have to lie to incriminate an honest one.
        While a site is silent, fewer liars would be enough, so no site is returned without the first proof.
        """
        fewest = 0 if len(self._shares) == len(self.session.peers) else self.session.threshold
        lost = [
            (sender, number)
            for sender in self.sums
            for number, other in enumerate(self._seeds_of(sender))
            if (sender, other) not in self._seeds
        ]
        return sorted({sender for sender, number in lost if len(self._found(sender, number)) >= fewest})

    @property
    def _places(self) -> dict[int, int]:
        return {client: number for number, client in enumerate(self.session.clients)}

    def _seeds_of(self, sender: int) -> list[int]:
        """Return the sites with which a site shares masks that do not cancel; itself stands for its own mask."""
        return [sender, *(client for client in self.session.clients if client not in self.sums)]

    def _right(self, client: int, sender: int, text: bytes) -> list[bytes]:
        """Return the shares of a sender's seeds that a site revealed, with b"" in place of wrong ones."""
        places, wanted = self._places, self._seeds_of(sender)
        if not text:  # this site could not decrypt the sender's shares
            return [b""] * len(wanted)
        marks = self.sums[sender].marks[places[client]]
        marks_of = [marks[MARK_BYTES * places[other] :][:MARK_BYTES] for other in wanted]
        shares = unpack_shares(text, len(wanted))
        return [share if mark_share(share) == each else b"" for share, each in zip(shares, marks_of, strict=True)]

    def _found(self, sender: int, number: int) -> dict[int, bytes]:
        """Return the right shares of one of a sender's seeds, by the place of the site that revealed them."""
        places = self._places
        found = {places[client]: each[sender][number] for client, each in self._shares.items()}
        return {place: share for place, share in found.items() if share}
