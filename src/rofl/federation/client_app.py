"""A site's side: a ClientApp that trains one client of any method."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import Tensors
from rofl.federation.protocol import RoundRequest, decode_request, encode_sums, encode_update
from rofl.methods.base import ServerState, Update

_STATE = "rofl-state-"  # context.state holds one record per round whose state may still be asked for


class Client(Protocol):
    """One client with its data, as the settings of a run want it."""

    def train(self, server_state: ServerState, index: int, state: Tensors) -> tuple[Update, Tensors]:
        """Train in round `index`; the state stays here."""

    def evaluate(self, server_state: ServerState) -> Mapping[str, float]:
        """Counts `right` and `tested` on the samples that are held out here."""

    def finish(
        self, server_state: ServerState, facts: Mapping[str, int | float | str]
    ) -> tuple[Mapping[str, float], Tensors]:
        """After the last round: judge the labels here; counts go up."""


class SiteData(Protocol):
    """Whoever has the data: tells what there is, and offers a seat for a run."""

    def describe(self, order: RoundRequest, context: Context) -> Mapping[str, int | float | str]:
        """Who is here: `client` (its number), `name`, `samples` and what else the coordinator needs to know."""

    def seat(self, order: RoundRequest, context: Context) -> Client:
        """The seat for these settings; the same one again where nothing changed."""


def make_client_app(host: SiteData, note: Callable[[str, RoundRequest], None] = lambda kind, order: None) -> ClientApp:
    """A Flower ClientApp for any method.

    Args:
        host: the data and the seats.
        note: is told what is asked for (`describe`, `train`, `evaluate`, `finish`) before it is done.
    """
    app = ClientApp()

    @app.query("describe")
    def describe(message: Message, context: Context) -> Message:
        order, _, _ = decode_request(message.content)
        note("describe", order)
        return Message(RecordDict({"site": ConfigRecord(dict(host.describe(order, context)))}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        order, server_state, _ = decode_request(message.content)
        note("train", order)
        update, state = host.seat(order, context).train(
            _there(server_state), order.index, load_state(context.state, order.kept)
        )
        save_state(context.state, order, state)
        return Message(encode_update(update, order.half), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        order, server_state, _ = decode_request(message.content)
        note("evaluate", order)
        return Message(encode_sums(host.seat(order, context).evaluate(_there(server_state))), reply_to=message)

    @app.query("finish")
    def finish(message: Message, context: Context) -> Message:
        order, server_state, facts = decode_request(message.content, exact=True)
        note("finish", order)
        return Message(encode_sums(*host.seat(order, context).finish(_there(server_state), facts)), reply_to=message)

    return app


def load_state(store: RecordDict, kept: int) -> Tensors:
    """The state that round `kept` left; empty where there is none, as for a site that lost its memory."""
    found = store.get(f"{_STATE}{kept}")
    return deserialize(found["state"].numpy().tobytes())[0]["state"] if isinstance(found, ArrayRecord) else {}


def save_state(store: RecordDict, order: RoundRequest, state: Tensors) -> None:
    """Keep this round's state beside the one it came from: the coordinator may yet be killed and ask again."""
    for name in [name for name in store if name.startswith(_STATE)]:
        if name != f"{_STATE}{order.kept}":
            del store[name]
    if state:
        raw = np.frombuffer(serialize({"state": state}, {}), dtype=np.uint8)
        store[f"{_STATE}{order.index}"] = ArrayRecord({"state": Array(raw)})


def _there(server_state: ServerState | None) -> ServerState:
    if server_state is None:
        raise ValueError("the order brings no model")
    return server_state
