"""The privacy of a run: its epsilon, computed by Opacus' accountant.

Sampling of cohorts does not reduce epsilon: cohorts follow from a seed, and metrics.jsonl lists them. But only the
rounds in which a client took part count for it.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rofl.config.schema import Experiment
from rofl.errors import UserError
from rofl.training.records import PrivacyRecord, RoundRecord

_FINEST, _COARSEST, _STEPS = -4, 4, 400  # orders of Renyi divergence from 1 + 10^-4 to 1 + 10^4


def epsilon(rounds: float, noise: float, delta: float) -> float:
    """Return an upper bound of epsilon for a client that takes part in `rounds` rounds; infinite without noise.

    Every round is a Gaussian mechanism without subsampling, and `rounds` of them with noise sigma compose to one with
    noise sigma / sqrt(rounds). The conversion from Renyi divergences adds up to a tenth.

    Args:
        rounds: the rounds in which the client takes part, or `full_rounds`.
        noise: the noise multiplier sigma.
        delta: the delta of (epsilon, delta)-differential privacy.
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
    """Return the equivalent number of full rounds of the client that took part most often.

    Each client of a cohort adds a share of the noise, so a round with fewer replies has less noise and counts for more
    than one.

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

    Its epsilon is None without a guarantee: there is no noise, or the cohorts are unknown.
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
