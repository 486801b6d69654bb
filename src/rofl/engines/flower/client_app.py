"""A site's side: a ClientApp that trains one client of any method."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from rofl.core.tensors import Tensors
from rofl.engines.flower.wire import Order, pack_sums, pack_update, unpack_order
from rofl.engines.records import pack, unpack
from rofl.methods.base import Global, Update

_STATE = "rofl-state-"  # context.state holds one record per round whose state may still be asked for


class Seat(Protocol):
    """One client with its data, as the settings of a run want it."""

    def train(self, glob: Global, index: int, state: Tensors) -> tuple[Update, Tensors]:
        """Train in round `index`; the state stays here."""

    def evaluate(self, glob: Global) -> Mapping[str, float]:
        """Counts `right` and `tested` on the samples that are held out here."""

    def finish(self, glob: Global, facts: Mapping[str, int | float | str]) -> tuple[Mapping[str, float], Tensors]:
        """After the last round: judge the labels here; counts go up."""


class Host(Protocol):
    """Whoever has the data: tells what there is, and offers a seat for a run."""

    def describe(self, order: Order, context: Context) -> Mapping[str, int | float | str]:
        """Who is here: `client` (its number), `name`, `samples` and what else the coordinator needs to know."""

    def seat(self, order: Order, context: Context) -> Seat:
        """The seat for these settings; the same one again where nothing changed."""


def make_client_app(host: Host, note: Callable[[str, Order], None] = lambda kind, order: None) -> ClientApp:
    """A Flower ClientApp for any method.

    Args:
        host: the data and the seats.
        note: is told what is asked for (`describe`, `train`, `evaluate`, `finish`) before it is done.
    """
    app = ClientApp()

    @app.query("describe")
    def describe(message: Message, context: Context) -> Message:
        order, _, _ = unpack_order(message.content)
        note("describe", order)
        return Message(RecordDict({"site": ConfigRecord(dict(host.describe(order, context)))}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        order, glob, _ = unpack_order(message.content)
        note("train", order)
        update, state = host.seat(order, context).train(_there(glob), order.index, recall(context.state, order.kept))
        keep(context.state, order, state)
        return Message(pack_update(update, order.half), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        order, glob, _ = unpack_order(message.content)
        note("evaluate", order)
        return Message(pack_sums(host.seat(order, context).evaluate(_there(glob))), reply_to=message)

    @app.query("finish")
    def finish(message: Message, context: Context) -> Message:
        order, glob, facts = unpack_order(message.content, exact=True)
        note("finish", order)
        return Message(pack_sums(*host.seat(order, context).finish(_there(glob), facts)), reply_to=message)

    return app


def recall(store: RecordDict, kept: int) -> Tensors:
    """The state that round `kept` left; empty where there is none, as for a site that lost its memory."""
    found = store.get(f"{_STATE}{kept}")
    return unpack(found["state"].numpy().tobytes())[0]["state"] if isinstance(found, ArrayRecord) else {}


def keep(store: RecordDict, order: Order, state: Tensors) -> None:
    """Keep this round's state beside the one it came from: the coordinator may yet be killed and ask again."""
    for name in [name for name in store if name.startswith(_STATE)]:
        if name != f"{_STATE}{order.kept}":
            del store[name]
    if state:
        raw = np.frombuffer(pack({"state": state}, {}), dtype=np.uint8)
        store[f"{_STATE}{order.index}"] = ArrayRecord({"state": Array(raw)})


def _there(glob: Global | None) -> Global:
    if glob is None:
        raise ValueError("the order brings no model")
    return glob
