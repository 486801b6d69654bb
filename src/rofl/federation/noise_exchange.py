"""Estimation of the label noise over all sites, at the end of a run, from sums that the sites send."""

from collections.abc import Sequence

from flwr.app import RecordDict

from rofl.audit.held_out_noise import held_out_noise, match_rate
from rofl.audit.noise_estimation import LabelNoise, PredictionSums, SureSums, noise_of_sums
from rofl.core.noise_posterior import noise_pattern
from rofl.federation.final_reports import FinalReports
from rofl.federation.noise_records import (
    add_sums,
    decode_predictions,
    decode_scores,
    decode_sure,
    put_noise,
    put_noise_facts,
)
from rofl.federation.site_requests import SiteRequests


def estimate_label_noise(
    sites: SiteRequests, known: FinalReports, request: RecordDict, classes: int
) -> LabelNoise | None:
    """Estimate the label noise from sums over all sites; None if there are no usable sums.

    No sums are requested once a site has finished, so that a resumed coordinator sends the same estimate to the others.

    Args:
        sites: Sends requests to the sites.
        known: The final answers that have arrived so far; new sums are stored there as they arrive.
        request: A request with the final model.
        classes: The number of classes of the model.
    """
    registry, counted = sites.registry, set[int]()

    def declared(clients: Sequence[int]) -> int:
        return sum(registry.sites[client].samples for client in clients)

    def decode(clients: Sequence[int], reply: RecordDict) -> PredictionSums:
        sums = decode_predictions(reply, classes, declared(clients))
        counted.update(clients)
        return sums

    if known.predictions is None and not known.finished:
        asked = frozenset(registry.sites) - sites.aside
        total = add_sums([*sites.count("query.noise", request, decode, asked).found.values()])
        if total is not None:
            known.add_predictions(total, counted)
    total = known.predictions
    if total is None or not total.beyond_chance:
        return None if total is None else noise_of_sums(total, SureSums(0, 0))
    pattern = noise_pattern(total.counts)
    if known.sure is None and not known.finished:
        content, asked = put_noise_facts(request, total.mean_doubt, pattern), known.counted
        found = sites.count(
            "query.sure", content, lambda who, reply: decode_sure(reply, declared(who), pattern), asked
        ).found
        sure = sum((each for each, _ in found.values()), start=SureSums(0, 0))
        if 0 < sure.samples <= total.samples:
            known.add_sure(sure, add_sums([each for _, each in found.values()]))
    if known.sure is None:
        return None
    if known.held_out is None or not known.held_out.suffices:
        return noise_of_sums(total, known.sure)
    noise = held_out_noise(known.held_out, pattern)
    if known.scores is None and not known.finished:
        content, asked = put_noise(request, noise), known.counted
        found_scores = sites.count(
            "query.scores", content, lambda who, reply: decode_scores(reply, declared(who), noise), asked
        ).found
        known.add_scores(add_sums([*found_scores.values()]))
    return noise if known.scores is None else match_rate(noise, known.scores)
