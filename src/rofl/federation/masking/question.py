"""A hash of the coordinator's request for a sum.

Sites derive their masks from it, so that a sum can be unmasked only if all sites got the same request. Otherwise a
coordinator could send the other sites a model whose update is zero, and the sum would be one site's update (Pasquini et
al. 2022, "Eluding Secure Aggregation in Federated Learning via Model Inconsistency", arXiv 2111.07380).
"""

from dataclasses import replace
from hashlib import sha256

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from rofl.core.tensors import Tensors, digest
from rofl.federation.masking.mask_messages import get_session
from rofl.federation.masking.peers import MaskSession
from rofl.federation.noise_records import FACTS, MATRIX
from rofl.federation.protocol import RoundRequest
from rofl.methods.base import ServerState


def read_question(
    content: RecordDict, request: RoundRequest, server_state: ServerState | None, state: Tensors | None = None
) -> tuple[bytes, MaskSession | None]:
    """Return the hash of a request and its session of masks; the session is None for sums without masks.

    The hash covers everything that the answer depends on. `session.question` leaves out the client state, which differs
    between sites. The client state must be in the other hash because the coordinator chooses it by its round: two sums
    for the same model, with different states of one site, would differ by that site's update only.

    Args:
        content: The message.
        request: The request of the message.
        server_state: The server state of the message.
        state: The client state to start from; None if the answer does not depend on one.

    Raises:
        ValueError: If the session is malformed.
    """
    session, question = get_session(content), _question(content, request, server_state)
    own = sha256(question + digest(state).encode()).digest() if state else question
    return own, session and replace(session, question=question, own_question=own)


def _question(content: RecordDict, request: RoundRequest, server_state: ServerState | None) -> bytes:
    """Return the hash of a request, without the client state and the session of masks."""
    sha = sha256(digest(server_state.model, server_state.aux).encode() if server_state else b"")
    sha.update(repr((request.settings, request.index, request.cautious)).encode())
    facts, arrays = content.get(FACTS), content.get(MATRIX)
    if isinstance(facts, ConfigRecord):
        sha.update(repr(sorted(facts.items())).encode())
    if isinstance(arrays, ArrayRecord):
        for name, array in sorted(arrays.items()):
            sha.update(repr((name, array.dtype, tuple(array.shape), array.stype)).encode() + array.data)
    return sha.digest()
