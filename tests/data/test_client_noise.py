"""Noise that differs between clients: FedCorr's rho and tau, a range of ratios, mixed kinds, and instances."""

import pytest
import torch

import rofl
from rofl.config.schema import parse_experiment
from rofl.core import noise
from rofl.data.corruption import client_kinds, client_ratios
from rofl.data.federated import FederatedDataset, load_federated
from rofl.data.noise_spec import NoiseSpec
from rofl.errors import UserError

FEDCORR = {"kind": "redraw", "client_min": 0.5, "client_max": 1.0, "noisy_clients": 0.8}


def federated(seed: int = 0, clients: int = 20, **settings) -> FederatedDataset:
    chosen = parse_experiment({"noise": settings, "clients": clients, "cohort": 2, "seed": seed})
    return load_federated(chosen.split)


def test_labels_that_are_drawn_anew_may_be_right() -> None:
    matrix = noise.redraw(10, 0.5)
    torch.testing.assert_close(matrix.diagonal(), torch.full((10,), 0.55, dtype=torch.float64))
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(10, dtype=torch.float64))
    assert float(matrix[0, 1]) == pytest.approx(0.05)


def test_fedcorrs_noise_has_clean_clients_and_noisy_ones_from_tau_to_1() -> None:
    ratios = client_ratios(NoiseSpec(**FEDCORR), 2000, seed=1)
    noisy = [ratio for ratio in ratios if ratio > 0]
    assert 0.77 < len(noisy) / 2000 < 0.83
    assert 0.5 <= min(noisy) < 0.51
    assert 0.99 < max(noisy) < 1
    assert sum(noisy) / len(noisy) == pytest.approx(0.75, abs=0.02)


def test_counted_ratios_are_nine_tenths_of_the_drawn_ones_and_clean_clients_are_clean() -> None:
    data, ratios = federated(**FEDCORR), client_ratios(NoiseSpec(**FEDCORR), 20, seed=0)
    for counted, drawn in zip(data.client_noise_rates, ratios, strict=True):
        assert counted == pytest.approx(0.9 * drawn, abs=0.2)
        assert (counted == 0) == (drawn == 0)


def test_a_flip_reaches_every_class() -> None:
    """FedCorr's own code draws from the classes 0 to 9 whatever the data set."""
    labels = noise.corrupt(torch.zeros(20_000, dtype=torch.long), noise.redraw(100, 0.9), torch.Generator())
    assert len(labels.unique()) == 100


def test_a_range_of_ratios_without_rho_makes_every_client_noisy() -> None:
    ratios = client_ratios(NoiseSpec(client_min=0.2, client_max=0.4), 300, seed=0)
    assert 0.2 <= min(ratios) < 0.22
    assert 0.38 < max(ratios) < 0.4
    assert len(set(ratios)) == 300


def test_mixed_kinds_are_half_and_half_and_a_pair_client_flips_to_the_next_class_only() -> None:
    settings = NoiseSpec(kind="mixed", ratio=0.5)
    kinds = client_kinds(settings, 20, seed=0)
    assert sorted(kinds) == ["pair"] * 10 + ["symmetric"] * 10
    data = federated(kind="mixed", ratio=0.5)
    truth = data.images.train_labels
    for rows, kind in zip(data.parts, kinds, strict=True):
        shifts = set(((data.labels[rows] - truth[rows]) % 10).tolist())
        assert shifts == {0, 1} if kind == "pair" else len(shifts) > 4


@pytest.mark.parametrize("settings", [{"ratio": 0.3}, {"client_min": 0.3, "client_max": 0.3}], ids=["all", "each"])
def test_instance_noise_confuses_what_looks_alike_and_has_the_asked_ratio(settings) -> None:
    data = federated(kind="instance", **settings)
    assert data.noise_ratio == pytest.approx(0.3, abs=0.01)
    truth, given = data.images.train_labels, data.labels
    counts = torch.zeros(10, 10).index_put_((truth, given), torch.ones(len(truth)), accumulate=True)
    wrong = counts.fill_diagonal_(0)
    assert float(wrong.max()) > 3 * float(wrong.sum() / 90)  # symmetric noise would have equal entries
    again = federated(kind="instance", **settings)
    assert torch.equal(again.labels, given)
    assert not torch.equal(federated(seed=1, kind="instance", **settings).labels, given)


def test_instance_noise_does_not_depend_on_threads() -> None:
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(federated(kind="instance", ratio=0.4).labels)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"client_min": 0.6, "client_max": 0.5}, r"noise.client_min = 0.6 is above noise.client_max = 0.5"),
        ({"client_min": 0.6}, r"noise.client_min = 0.6 is above noise.client_max = 0"),
        ({"client_max": 0.5, "client_spread": 0.1}, "both say how clients differ"),
        ({"kind": "redraw", "fully_noisy_class": True}, "fully_noisy_class is not for noise.kind = redraw"),
        ({"kind": "human", "noisy_clients": 0.5}, "noise.noisy_clients is for drawn noise"),
        ({"kind": "human", "client_max": 0.5}, "noise.client_max is for drawn noise"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_sentence(settings, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        parse_experiment({"noise": settings, "data": {"name": "cifar10"}})


def test_what_is_asked_for_and_what_came_out_are_in_the_summary(tmp_path) -> None:
    changes = {f"noise__{key}": value for key, value in FEDCORR.items()}
    small = {"rounds": 1, "clients": 4, "cohort": 2, "data__train": 120, "data__test": 60, "model__name": "mlp"}
    done = rofl.run(rofl.preset("digits", **changes, **small), tmp_path / "run", workers=0)
    record = done.summary.noise
    assert (record.kind, record.client_min, record.client_max, record.noisy_clients) == ("redraw", 0.5, 1.0, 0.8)
    assert record.achieved == pytest.approx(done.experiment.noise.expected_ratio, abs=0.35)
    assert done.experiment.noise.expected_ratio == 0.6
