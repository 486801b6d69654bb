"""Flower's SuperLink, without its memory of transfers that are over: `superlink_program.py flower-superlink ARGUMENTS`.

The SuperLink remembers each call that sends messages until all parts of these messages have arrived. Messages that
travel whole have no parts, and Flower keeps their records until it ends: with thirty sites 0.33 MB a round. Here a
record is deleted once its messages are gone. Imports nothing of rofl, so that it starts fast.
"""

import sys

from flwr.supercore.corestate.in_memory_corestate import InMemoryCoreState

_ENOUGH = 256  # records that are kept without looking


def delete_old_sessions(state: InMemoryCoreState) -> None:
    """Delete the records of transfers whose messages are no longer stored, if there are many records.

    Messages that are still on their way, or have not been confirmed, keep theirs.
    """
    with state._lock_object_push_sessions:
        sessions = state._object_push_sessions
        if len(sessions) <= state.__dict__.get("_rofl_limit", _ENOUGH):
            return
        for name, session in list(sessions.items()):
            roots = session.root_object_ids
            if roots and not any(root in state.object_store for root in roots):
                state._cleanup_push_session(name, cleanup_messages=False)
        state.__dict__["_rofl_limit"] = max(_ENOUGH, 2 * len(sessions))


def install() -> None:
    """Let Flower's state delete old records whenever a transfer begins."""
    start = InMemoryCoreState.start_session

    def start_session(self: InMemoryCoreState, run_id: int) -> str:
        delete_old_sessions(self)
        return start(self, run_id)

    InMemoryCoreState.start_session = start_session  # type: ignore[method-assign]


if __name__ == "__main__":
    from flwr.superlink.cli import flower_superlink

    install()
    sys.argv = sys.argv[1:]
    flower_superlink()
