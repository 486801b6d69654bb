"""A site's side of the protocol: a Flower ClientApp that trains one client of any method."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from rofl.audit.held_out_noise import ScoreSums
from rofl.audit.noise_estimation import LabelNoise, PredictionSums, SureSums
from rofl.core.held_out_fit import HeldOutSums
from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import Tensors
from rofl.federation.masking.question import read_question
from rofl.federation.noise_records import (
    encode_predictions,
    encode_scores,
    encode_sure,
    get_fitted_noise,
    get_noise_facts,
)
from rofl.federation.protocol import RoundRequest, decode_request, encode_update, put_sums
from rofl.federation.site_evaluation import SiteEvaluation
from rofl.federation.site_gate import SiteGate
from rofl.federation.site_info import SiteInfo
from rofl.federation.site_report import SiteReport
from rofl.methods.base import ServerState, Update

_STATE = "rofl-state-"  # context.state has one record for each round whose client state a request may still name


class Client(Protocol):
    """One client with its data, for the settings of one run."""

    @property
    def samples(self) -> int:
        """The number of its training samples."""

    def train(
        self, server_state: ServerState, index: int, state: Tensors, cautious: bool = False
    ) -> tuple[Update, Tensors]:
        """Train in round `index`.

        Args:
            server_state: The server's model and the other tensors that the method sends.
            index: The round, counted from 1.
            state: The client state of an earlier round; {} if there is none.
            cautious: Whether to use the cautious form of the method.

        Returns:
            The update, and the next client state, which stays at the site.
        """

    def evaluate(self, server_state: ServerState, index: int = 0) -> SiteEvaluation:
        """Evaluate the model of a round on the held-out samples and return counts."""

    @property
    def classes(self) -> int:
        """The number of classes of the model."""

    def sum_predictions(self, server_state: ServerState) -> PredictionSums:
        """Return the sums of the first pass of the noise estimate, computed with the final model."""

    def sum_sure(self, server_state: ServerState, mean_doubt: float, pattern: Tensor) -> tuple[SureSums, HeldOutSums]:
        """Return the sums of the second pass of the noise estimate.

        Args:
            server_state: The final server state.
            mean_doubt: The mean doubt over the samples of all sites.
            pattern: The noise pattern over all sites, (K, K).
        """

    def sum_scores(self, server_state: ServerState, noise: LabelNoise) -> ScoreSums:
        """Return the sums of the third pass; `noise` was fitted to the held-out samples of all sites."""

    def report(self, server_state: ServerState, noise: LabelNoise | None = None) -> SiteReport:
        """Audit the labels with the final model and the noise over all sites, and return counts."""

    def finish(self, server_state: ServerState, history: str, noise: LabelNoise | None = None) -> SiteReport:
        """Audit the labels like `report`, write the site's run folder, and return counts.

        Args:
            server_state: The final server state.
            history: The records of all rounds, as a JSON list.
            noise: The label noise over all sites; None to estimate it from the site's own labels.
        """


class SiteData(Protocol):
    """The data of a site."""

    def describe(self, request: RoundRequest, context: Context) -> SiteInfo:
        """Return the site's name and a description of its data, which the coordinator requests once per connection."""

    def client(self, request: RoundRequest, context: Context) -> Client:
        """Return the client for the settings of a request; equal settings return the same object."""


Compute = Callable[[SiteGate, Client, ServerState], RecordDict]  # computes the sums of one kind of request


def make_client_app(data: SiteData, gate: Callable[[Context], SiteGate] | None = None) -> ClientApp:
    """Return a Flower ClientApp for any method.

    Args:
        data: The site's data, which creates the clients.
        gate: Returns the gate that checks requests and replies. None admits everything, which suits public data.
    """
    app, open_gate = ClientApp(), SiteGate()
    gate_of = gate or (lambda context: open_gate)

    @app.query("describe")
    def describe(message: Message, context: Context) -> Message:
        request, _ = decode_request(message.content)
        gate_of(context).admit("describe", request)
        return Message(gate_of(context).greeting(data.describe(request, context)).encode(), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        request, server_state = decode_request(message.content)
        own, state = gate_of(context), load_state(context.state, request.state_round)
        question, session = read_question(message.content, request, server_state, state)
        own.admit("train", request, session, question)
        client = data.client(request, context)
        own.check_samples(client.samples)
        update, state = client.train(_required(server_state), request.index, state, request.cautious)
        save_state(context.state, request, state)
        content = encode_update(update, request.bf16)
        return Message(own.release("train", request, content, session), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        request, server_state = decode_request(message.content)
        own, (question, session) = gate_of(context), read_question(message.content, request, server_state)
        own.admit("evaluate", request, session, question)
        counts = own.evaluation(data.client(request, context).evaluate(_required(server_state), request.index))
        return Message(own.release("evaluate", request, counts.encode(), session), reply_to=message)

    def answer(kind: str, message: Message, context: Context, compute: Compute) -> Message:
        """Answer a request for sums after the last round; `compute` is called only if the gate admits the request."""
        request, server_state = decode_request(message.content, exact=True)
        own, (question, session) = gate_of(context), read_question(message.content, request, server_state)
        own.admit(kind, request, session, question)
        content = compute(own, data.client(request, context), _required(server_state))
        return Message(own.release(kind, request, content, session), reply_to=message)

    @app.query("noise")
    def noise(message: Message, context: Context) -> Message:
        def compute(own: SiteGate, client: Client, server_state: ServerState) -> RecordDict:
            return encode_predictions(own.predictions(client.sum_predictions(server_state)))

        return answer("noise", message, context, compute)

    @app.query("sure")
    def sure(message: Message, context: Context) -> Message:
        def compute(own: SiteGate, client: Client, server_state: ServerState) -> RecordDict:
            mean, pattern = get_noise_facts(message.content, client.classes)
            return encode_sure(*own.sure(*client.sum_sure(server_state, mean, pattern), client.samples))

        return answer("sure", message, context, compute)

    @app.query("scores")
    def scores(message: Message, context: Context) -> Message:
        def compute(own: SiteGate, client: Client, server_state: ServerState) -> RecordDict:
            noise = get_fitted_noise(message.content, client.classes)
            return encode_scores(own.scores(client.sum_scores(server_state, noise), client.samples))

        return answer("scores", message, context, compute)

    @app.query("report")
    def report(message: Message, context: Context) -> Message:
        def compute(own: SiteGate, client: Client, server_state: ServerState) -> RecordDict:
            noise, _ = own.noise(message.content, client.classes)
            return own.report(client.report(server_state, noise)).encode()

        return answer("report", message, context, compute)

    @app.query("unmask")
    def unmask(message: Message, context: Context) -> Message:
        return Message(gate_of(context).unmask(message.content), reply_to=message)

    @app.query("finish")
    def finish(message: Message, context: Context) -> Message:
        request, server_state = decode_request(message.content, exact=True)
        own, (question, _) = gate_of(context), read_question(message.content, request, server_state)
        own.admit("finish", request, None, question)
        client = data.client(request, context)
        noise, alone = own.noise(message.content, client.classes)
        if alone:
            own.log.write("alone", reason=alone)
            own.on_message(f"The label noise is estimated from this site's labels alone: {alone}.")
        counts = own.report(client.finish(_required(server_state), request.history, noise))
        content = counts.encode() if own.sends_in_the_clear(request) else put_sums(RecordDict(), {})
        return Message(own.release("finish", request, content, None), reply_to=message)

    @app.query("confirm")
    def confirm(message: Message, context: Context) -> Message:
        decode_request(message.content)
        gate_of(context).log.write("confirmed")
        return Message(RecordDict(), reply_to=message)

    return app


def load_state(records: RecordDict, state_round: int) -> Tensors:
    """Return the client state of a round; {} if there is none, for example because the site lost it."""
    record = records.get(f"{_STATE}{state_round}")
    if not isinstance(record, ArrayRecord):
        return {}
    return deserialize(record["state"].numpy().tobytes())[0]["state"]


def save_state(records: RecordDict, request: RoundRequest, state: Tensors) -> None:
    """Save the client state after a round, and keep the one that the round started from.

    The coordinator may be killed before its checkpoint and repeat the round.

    Args:
        records: `context.state`, which Flower keeps between messages.
        request: The request of the round.
        state: The client state after the round; an empty one is not written.
    """
    for name in [name for name in records if name.startswith(_STATE)]:
        if name != f"{_STATE}{request.state_round}":
            del records[name]
    if state:
        raw = np.frombuffer(serialize({"state": state}, {}), dtype=np.uint8)
        records[f"{_STATE}{request.index}"] = ArrayRecord({"state": Array(raw)})


def _required(server_state: ServerState | None) -> ServerState:
    if server_state is None:
        raise ValueError("the request brings no model")
    return server_state
