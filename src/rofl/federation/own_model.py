"""A site's opinion of a round's model: whether the best one that it trained itself is better by far.

A bad site may drag the model down by as little as the bounds on sums allow, from the first round on, when nothing is
known yet that a round could be compared with. But every honest site has a model of its own to compare with.
"""

from collections.abc import Sequence
from math import sqrt

from torch import Tensor

_FEWEST = 10  # held-out samples; with fewer a site has no opinion
_FAR = 0.15  # of the held-out samples
_DEVIATIONS = 2.0  # standard errors that are beyond chance
_EVEN = 0.5  # of the classes: where a site's labels are fewer, in effect, its own model naturally knows them better


class OwnModel:
    """How the best model that a client trained by itself does on its held-out samples."""

    def __init__(self) -> None:
        self._best: Tensor | None = None  # (n,) which samples it predicts as labelled
        self._round = 0  # of which an opinion may be given, once

    def learn(self, right: Tensor, index: int) -> None:
        """Take in the model that the client trained in a round.

        Args:
            right: (n,) which held-out samples it predicts as labelled.
            index: the round.
        """
        if self._best is None or index == 1 or int(right.sum()) > int(self._best.sum()):  # a run may begin anew
            self._best = right
        self._round = index

    def objects(self, right: Tensor, labelled: Sequence[int], index: int) -> bool | None:
        """Return whether a round's model is worse by far; None where the client did not train in it, or cannot tell.

        It answers once in a round, whatever models are sent.

        Args:
            right: (n,) which held-out samples the round's model predicts as labelled.
            labelled: (K,) how often each class is given among them.
            index: the round.
        """
        trained, self._round = self._round == index, 0
        if not trained or self._best is None or len(right) < _FEWEST or not _is_even(labelled):
            return None
        lost, won = int((self._best & ~right).sum()), int((right & ~self._best).sum())
        return lost - won > max(_FAR * len(right), _DEVIATIONS * sqrt(lost + won))


def _is_even(labelled: Sequence[int]) -> bool:
    """Return whether labels are spread over the classes: by their effective number, 1 / sum of squared shares."""
    total = max(sum(labelled), 1)
    return 1 / max(sum((count / total) ** 2 for count in labelled), 1e-12) >= _EVEN * len(labelled)
