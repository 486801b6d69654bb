"""One masked sum over sites: request it, unmask it, and report the missing sites."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import RecordDict

from rofl.federation.masking.mask_messages import put_session
from rofl.federation.masking.peers import Peer
from rofl.federation.masking.unmasking import MaskedTotal, new_session

# Sends requests of one kind to sites, and yields (site, reply or reason why there is none) as replies arrive.
Send = Callable[[str, Mapping[int, RecordDict]], Iterator[tuple[int, RecordDict | str]]]


@dataclass(frozen=True)
class SumResult:
    """A sum over sites, or why there is none.

    Attributes:
        content: The sum, as a message of the same form as a site's message; None if it could not be unmasked.
        arrived: The sites that are in the sum.
        problems: Why other sites are left out; has all sites if there is no sum.
        problem: Why the sum is unusable, if a site must have corrupted it; empty if too few sites answered.
        suspects: The sites that dealt wrong shares of their masks, if known.
    """

    content: RecordDict | None
    arrived: list[int]
    problems: dict[int, str]
    problem: str = ""
    suspects: tuple[int, ...] = ()


def secure_sum(kind: str, requests: Mapping[int, RecordDict], peers: Sequence[Peer], send: Send) -> SumResult:
    """Return the sum of the sites' replies, without learning any single reply.

    Args:
        kind: Flower's message type, such as "train".
        requests: The request to each connected site.
        peers: All sites that may be in the sum, connected or not.
        send: Sends the requests.
    """
    session = new_session(peers)
    total = MaskedTotal(session)
    masked = {client: put_session(request, session) for client, request in requests.items()}
    away = dict.fromkeys(set(session.clients) - set(requests), "it is not connected")
    total.take_replies({**away, **dict(send(kind, masked))})
    if not total.is_enough:
        reason = f"{len(total.sums)} of {len(peers)} sites answered, and {session.threshold} must"
        return _without_sum(total, f"the sum cannot be unmasked: {reason}")
    problems = dict[int, str]()
    for client, reply in send("query.unmask", total.unmask_requests()):
        problem = total.take_shares(client, reply)
        if problem is not None:
            problems[client] = problem
            continue
        try:
            content = total.total()
        except ValueError as error:
            return _without_sum(total, str(error), str(error))
        if content is not None:
            return SumResult(content, total.arrived, total.problems)
    wrong = total.senders_of_wrong_shares()
    problem = "a site's shares of masks are wrong, and it is not known whose" if total.is_spoilt else ""
    if wrong:
        problem = f"the shares of masks of {' and '.join(f'site {client}' for client in wrong)} are wrong"
    faults = "; ".join(f"site {client}: {each}" for client, each in problems.items()) or "shares do not fit"
    return _without_sum(total, f"the sum cannot be unmasked: {problem or faults}", problem, tuple(wrong))


def _without_sum(total: MaskedTotal, reason: str, problem: str = "", suspects: tuple[int, ...] = ()) -> SumResult:
    problems = {client: total.problems.get(client, reason) for client in total.session.clients}
    return SumResult(None, [], problems, problem, suspects)
