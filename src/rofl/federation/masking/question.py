"""The coordinator's request for a sum, as one hash.

Sites make their masks of it. So the sum can be unmasked only if all of them were asked the same: a coordinator could
otherwise send a model from which the others learn nothing, and the sum would be one site's update (Pasquini et al.
2022, "Eluding Secure Aggregation in Federated Learning via Model Inconsistency", arXiv 2111.07380).
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
    """Return what a request asks, as a hash, and its session of masks; None where it asks for sums without masks.

    The hash is of all that the answer depends on. That of the session is without the client state, which each site has
    its own of. A coordinator chooses the state by its round: two sums of the same model, for which one site starts from
    different states, would differ by what that site alone sends.

    Args:
        content: The message.
        request: Its request.
        server_state: Its model.
        state: The client state to start from; None where the answer depends on none.

    Raises:
        ValueError: If its session cannot be read.
    """
    session, question = get_session(content), _question(content, request, server_state)
    own = sha256(question + digest(state).encode()).digest() if state else question
    return own, session and replace(session, question=question, own_question=own)


def _question(content: RecordDict, request: RoundRequest, server_state: ServerState | None) -> bytes:
    """Return the hash of a request without what is a site's own: its client state, and the session of masks."""
    sha = sha256(digest(server_state.model, server_state.aux).encode() if server_state else b"")
    sha.update(repr((request.settings, request.index, request.cautious)).encode())
    facts, arrays = content.get(FACTS), content.get(MATRIX)
    if isinstance(facts, ConfigRecord):
        sha.update(repr(sorted(facts.items())).encode())
    if isinstance(arrays, ArrayRecord):
        for name, array in sorted(arrays.items()):
            sha.update(repr((name, array.dtype, tuple(array.shape), array.stype)).encode() + array.data)
    return sha.digest()
