"""The table `bounds`: what one client may do to a round, and what is done where a round goes wrong."""

from typing import Annotated

from pydantic import Field

from rofl.core.settings import Spec


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
