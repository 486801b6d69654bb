"""A site that misbehaves: `python -m tests.federation.bad_site HOW` and then the arguments of `rofl join`.

HOW is what is wrong with its updates (see SPOILT), or one of these:

- `pause:ROUND:FILE`: it sleeps in that round until it is killed, unless FILE is there, which it makes first.
- `late:ROUND:SECONDS`: it trains for so long in that round, and as usual in others.
- `shares`: the shares of its masks that it sends to the other sites cannot be read.
- `empty`: it has no sample. `old` or `newer`: its protocol is another.
- `hostile`: it answers the first question like an honest site, and everything else with a message of
  `test_hostile_sites`, in turn.
- `away`: it answers requests to train with the error by which Flower says that a site is not connected.
- `patient`: a coordinator, not a site, that waits for sites that restart for as long as it takes, for machines that
  are busy with other things.
"""

import itertools
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from rofl.cli import main
from rofl.core.tensors import Tensors
from rofl.federation import flower_engine, messaging, protocol
from rofl.federation.masking.mask_messages import MaskedSums
from rofl.federation.masking.peers import MaskSession
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.site_client import SiteClient
from rofl.federation.site_data import PartitionedData
from rofl.federation.site_info import SiteInfo
from rofl.methods.base import ServerState, Update


def _first(update: Update, value: torch.Tensor) -> Update:
    return replace(update, model={**update.model, next(iter(update.model)): value})


def _slow(update: Update) -> Update:
    time.sleep(600)
    return update


def _raise(update: Update) -> Update:
    raise RuntimeError("no such file: somebody.png")


SPOILT = {
    "nan": lambda update: _first(update, next(iter(update.model.values())) * float("nan")),
    "shape": lambda update: _first(update, torch.zeros(7)),
    "key": lambda update: replace(update, model={**update.model, "another": torch.zeros(1)}),
    "weight": lambda update: replace(update, weight=-1.0),
    "boost": lambda update: replace(update, model={name: 1000 * value for name, value in update.model.items()}),
    "slow": _slow,
    "raise": _raise,
}


def spoil(how: str) -> None:
    kind, _, rest = how.partition(":")
    number, _, file = rest.partition(":")
    train = SiteClient.train

    def spoilt(
        self: SiteClient, server_state: ServerState, index: int, state: Tensors, cautious: bool = False
    ) -> tuple[Update, Tensors]:
        if kind == "pause" and index == int(number) and not Path(file).exists():
            Path(file).touch()
            time.sleep(600)
        if kind == "late" and index == int(number):
            time.sleep(float(file))
        update, state = train(self, server_state, index, state, cautious)
        return SPOILT[kind](update) if kind in SPOILT else update, state

    SiteClient.train = spoilt  # type: ignore[method-assign]
    if kind == "hostile":
        be_hostile()
    if kind == "away":
        say_away()
    if kind == "shares":
        mask = SiteMasks.mask

        def deal(self: SiteMasks, content: RecordDict, session: MaskSession, purpose: str) -> RecordDict:
            sent = MaskedSums.decode(mask(self, content, session, purpose), len(session.peers))
            return replace(sent, shares=tuple(bytes(len(each)) for each in sent.shares)).encode()

        SiteMasks.mask = deal  # type: ignore[method-assign]
    if kind == "patient":
        messaging._GRACE = 900.0
        flower_engine._LAST_CALL = 300.0
    if kind == "empty":
        PartitionedData.describe = lambda self, request, context: SiteInfo(0, self.name, 0)  # type: ignore
    if kind == "newer":
        protocol.PROTOCOL += 1
    if kind == "old":  # 0.1 sends no version, and checks none
        fields = SiteInfo.fields
        SiteInfo.fields = lambda self: {k: v for k, v in fields(self).items() if k != "protocol"}  # type: ignore


def say_away() -> None:
    """Claim not to be connected; the coordinator waits half a minute for sites of which Flower says so."""
    from rofl.federation import site_node

    make = site_node.make_client_app

    def away(*arguments: Any) -> Any:
        app = make(*arguments)

        def answer(message: Message, context: Context) -> Message:
            if message.metadata.message_type == "train":
                return Message(Error(ErrorCode.NODE_UNAVAILABLE, "away"), reply_to=message)
            return app(message, context)

        return answer

    site_node.make_client_app = away  # type: ignore[assignment]


def be_hostile() -> None:
    """Answer with what nobody should send."""
    from rofl.federation import site_node
    from tests.federation.test_hostile_sites import BAD

    make, answers = site_node.make_client_app, itertools.cycle(BAD.values())

    def hostile(*arguments: Any) -> Any:
        app = make(*arguments)

        def answer(message: Message, context: Context) -> Message:
            if message.metadata.message_type in ("query.describe", "query.confirm"):
                return app(message, context)
            return Message(next(answers), reply_to=message)

        return answer

    site_node.make_client_app = hostile  # type: ignore[assignment]


if __name__ == "__main__":
    spoil(sys.argv.pop(1))
    main()
