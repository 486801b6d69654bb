"""The tables `server` and `bounds`: the server's step, and limits on one client's influence."""

import math
from typing import Annotated, Literal

from pydantic import Field

from rofl.core.robust import RobustKind
from rofl.core.settings import Spec
from rofl.methods.postprocessors import Postprocessor, RobustSum, RoundAverage, ServerMomentum


class ServerSpec(Spec):
    """The table `server`: the server's step and the model that is evaluated.

    Attributes:
        momentum: Server momentum (FedAvgM); 0 for plain FedAvg.
        lr: The server's learning rate.
        average: The model that is evaluated and saved: "none" for that of the round, "mean" for the mean over rounds,
            "moving" for a moving average over them. Clients always train from the model of the round.
        average_from: The share of the rounds after which averaging starts.
        average_momentum: The momentum of the moving average.
        robust: Robust aggregation instead of the mean: "none", "median", "trimmed" or "krum"; the server must see
            single updates.
        bad_share: The assumed share of bad clients, for "trimmed" and "krum".
    """

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    lr: Annotated[float, Field(gt=0)] = 1.0
    average: Literal["none", "mean", "moving"] = "none"
    average_from: Annotated[float, Field(ge=0, lt=1)] = 0.8
    average_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    robust: RobustKind = "none"
    bad_share: Annotated[float, Field(gt=0, lt=0.5)] = 0.2

    def postprocessors(self, rounds: int) -> list[Postprocessor]:
        """Return the postprocessors of these settings for a run of `rounds` rounds; none by default."""
        steps: list[Postprocessor] = []
        if self.robust != "none":
            steps.append(RobustSum(self.robust, self.bad_share))
        if self.momentum or self.lr != 1:
            steps.append(ServerMomentum(self.momentum, self.lr))
        if self.average != "none":
            first = math.floor(round(self.average_from * rounds, 9)) + 1
            steps.append(RoundAverage(first, self.average_momentum if self.average == "moving" else None))
        return steps


class BoundsSpec(Spec):
    """The table `bounds`: off for runs on one machine, on for `rofl serve`; docs/security.md.

    Attributes:
        on: Whether updates are clipped and checked.
        quantile: The quantile of a round's update norms that sets the bound.
        margin: The bound, as a multiple of that quantile.
        max_share: The largest share of all declared samples that one site may have, with three or more sites.
        rollback: Whether a round with an implausible result is undone.
        aside: Rounds for which a client that corrupted one is excluded; doubled each time.
    """

    on: bool = False
    quantile: Annotated[float, Field(gt=0, lt=1)] = 0.5
    margin: Annotated[float, Field(ge=1)] = 2.0
    max_share: Annotated[float, Field(gt=0, le=1)] = 0.75
    rollback: bool = False
    aside: Annotated[int, Field(ge=1)] = 10
