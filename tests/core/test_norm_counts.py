"""Counts of norms: a quantile by sums, to which nobody adds more than one."""

import torch

from rofl.core.norm_counts import BINS, count_norm, counts_once, quantile, upper_edge
from rofl.core.rng import generator


def test_the_quantile_is_that_of_the_norms_up_to_the_width_of_a_bin() -> None:
    norms = torch.empty(101).log_normal_(2, 3, generator=generator(0)).tolist()
    total = sum((count_norm(norm) for norm in norms), torch.zeros(BINS))
    for share in (0.1, 0.5, 0.9):
        exact = sorted(norms)[round(share * 100)]
        assert exact <= quantile(total, share) <= exact * 2**0.5 * 1.001


def test_one_client_moves_the_median_by_one_place_whatever_it_says() -> None:
    honest = sum((count_norm(norm) for norm in (1.0, 1.0, 1.0, 1.0)), torch.zeros(BINS))
    assert {quantile(honest + count_norm(norm), 0.5) for norm in (0.0, 1e30, float("inf"), float("nan"))} == {1.0}


def test_norms_of_any_size_have_a_bin() -> None:
    assert int(count_norm(0.0).argmax()) == 0
    assert int(count_norm(float("inf")).argmax()) == BINS - 1
    assert all(int(count_norm(upper_edge(place)).argmax()) == place for place in range(BINS))


def test_counts_that_are_not_one_for_each_client_are_recognized() -> None:
    rows = torch.stack([count_norm(1.0), count_norm(2.0)])
    assert counts_once(rows, 1)
    assert not counts_once(2 * rows, 1)
    assert not counts_once(rows / 2 + rows.roll(1, dims=1) / 2, 1)
    forged = rows.clone()
    forged[0, 3], forged[0, 4] = -4, 4
    assert not counts_once(forged, 1)
