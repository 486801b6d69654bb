"""The privacy of a run: its epsilon, by the accountant of Opacus.

Sampling of cohorts does not reduce epsilon: cohorts follow from a seed, and metrics.jsonl lists them. What reduces it
is that only those rounds count for a client in which it took part.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rofl.config.schema import Experiment
from rofl.errors import UserError
from rofl.training.records import PrivacyRecord, RoundRecord

_FINEST, _COARSEST, _STEPS = -4, 4, 400  # orders of Renyi divergence from 1 + 10^-4 to 1 + 10^4


def epsilon(rounds: float, noise: float, delta: float) -> float:
    """An upper bound of epsilon for a client that takes part in so many rounds; infinite without noise.

    Every round is a Gaussian mechanism that a client takes part in for certain, and Gaussian mechanisms of noise sigma
    are together one of noise sigma / sqrt(rounds). The conversion from Renyi divergences costs up to a tenth.

    Args:
        rounds: in which the client takes part, or `full_rounds`.
        noise: the noise multiplier sigma.
        delta: the probability with which more may become known.
    """
    if rounds <= 0:
        return 0.0
    if noise <= 0:
        return math.inf
    accountant = _accountant()
    accountant.step(noise_multiplier=noise / math.sqrt(rounds), sample_rate=1.0)
    exponents = (_FINEST + (_COARSEST - _FINEST) * step / _STEPS for step in range(_STEPS + 1))
    return float(accountant.get_epsilon(delta, alphas=[1 + 10**exponent for exponent in exponents]))


def full_rounds(answered: Iterable[Collection[int]], cohort: int) -> float:
    """The rounds of the busiest client, given who answered in each round.

    Noise is shared among a cohort, so that a round with fewer answers has less of it, and counts for more than one.

    >>> full_rounds([{0, 1}, {0, 2}, {1}], cohort=2)
    3.0
    """
    burden: dict[int, float] = {}
    for clients in answered:
        for client in clients:
            burden[client] = burden.get(client, 0.0) + cohort / len(clients)
    return max(burden.values(), default=0.0)


def privacy_spent(experiment: Experiment, history: Sequence[RoundRecord]) -> PrivacyRecord | None:
    """Return the privacy of a run with these rounds, for its summary; None if it is off.

    Its epsilon is None if nothing is guaranteed, since there is no noise, or if it is not known who took part.
    """
    privacy = experiment.privacy
    if not privacy.clip:
        return None
    answered = [set(record.cohort) - {int(client) for client in record.dropped} for record in history]
    found = epsilon(full_rounds(answered, experiment.cohort), privacy.noise, privacy.delta)
    known = math.isfinite(found) and all(record.cohort for record in history)
    return PrivacyRecord(**privacy.model_dump(), epsilon=found if known else None)


def _accountant() -> Any:
    try:
        from opacus.accountants import RDPAccountant  # slow to import, and an extra
    except ImportError as error:
        raise UserError("The epsilon of a private run needs Opacus.", "pip install 'fed-noisy-labels[dp]'") from error
    return RDPAccountant()
