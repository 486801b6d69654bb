"""The tables `server` and `bounds`: the server's step of a round, and the limits on what one client can do to it."""

import math
from typing import Annotated, Literal

from pydantic import Field

from rofl.core.robust import RobustKind
from rofl.core.settings import Spec
from rofl.methods.postprocessors import Postprocessor, RobustSum, RoundAverage, ServerMomentum


class ServerSpec(Spec):
    """The table `server`: the server's step and the model that is evaluated.

    Attributes:
        momentum: FedAvgM: the share of the last change that a round adds to its own; 0 for plain FedAvg.
        lr: What the change of a round, momentum included, is multiplied by.
        average: The model that is evaluated and saved: "none" for that of the round, "mean" for the mean over rounds,
            "moving" for a moving average over them. Clients train from the model of the round in any case.
        average_from: The share of the rounds after which the average begins.
        average_momentum: The momentum of the moving average.
        robust: What takes the place of the mean over clients: "none" for the mean itself, "median", "trimmed" or
            "krum"; the server has to see single updates.
        bad_share: The share of the clients that may be bad, for "trimmed" and "krum".
    """

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    lr: Annotated[float, Field(gt=0)] = 1.0
    average: Literal["none", "mean", "moving"] = "none"
    average_from: Annotated[float, Field(ge=0, lt=1)] = 0.8
    average_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    robust: RobustKind = "none"
    bad_share: Annotated[float, Field(gt=0, lt=0.5)] = 0.2

    def postprocessors(self, rounds: int) -> list[Postprocessor]:
        """Return the postprocessors that these settings ask for in a run of so many rounds; none by default."""
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
        quantile: Of the norms of a round's updates, by which the bound is set.
        margin: How many times that quantile an update may be long.
        max_share: The largest share of all declared samples that one site of three or more may have.
        rollback: Whether a round with an implausible result is undone.
        aside: For how many rounds a client that corrupted one is excluded; twice as many each time.
    """

    on: bool = False
    quantile: Annotated[float, Field(gt=0, lt=1)] = 0.5
    margin: Annotated[float, Field(ge=1)] = 2.0
    max_share: Annotated[float, Field(gt=0, le=1)] = 0.75
    rollback: bool = False
    aside: Annotated[int, Field(ge=1)] = 10
