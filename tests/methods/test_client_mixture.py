"""Which clients are noisy: by sums as well as by a table, however few take part in a round."""

import numpy as np
import pytest
import torch

from rofl.core.tensors import add
from rofl.methods.client_mixture import ClientMixture
from rofl.methods.distance_weights import model_distance, published_factors
from rofl.methods.fedcorr import split_clients
from rofl.methods.fednoro import vote_noisy

SIZE, CLIENTS = 3, 20
NOISY = [client for client in range(CLIENTS) if client % 3 == 0]


def vectors(seed: int = 0) -> torch.Tensor:
    """Clean clients around 0.5, noisy ones around 2."""
    spread = 0.2 * torch.randn(CLIENTS, SIZE, generator=torch.Generator().manual_seed(seed))
    centre = torch.tensor([2.0 if client in NOISY else 0.5 for client in range(CLIENTS)])
    return centre.unsqueeze(1) + spread


def rounds(mixture: ClientMixture, measured: torch.Tensor, cohorts: list[list[int]], seen=None):
    """The server's state after some rounds of cohorts, each client measuring the same again."""
    aux, states = mixture.init(SIZE), [{} for _ in range(CLIENTS)]
    seen = torch.ones(CLIENTS, SIZE, dtype=torch.bool) if seen is None else seen
    for cohort in cohorts:
        total = mixture.zero(aux)
        for client in cohort:
            sent, states[client] = mixture.measure(measured[client], seen[client], aux, states[client], client)
            total = add(total, sent)
        aux = mixture.server_update(aux, total)
    return aux, seen


EVERYBODY = [list(range(CLIENTS))] * 8
FEW = [[(5 * index + place) % CLIENTS for place in range(5)] for index in range(40)]


@pytest.mark.parametrize("cohorts", [EVERYBODY, FEW], ids=["all clients", "five a round"])
@pytest.mark.parametrize(
    "mixture", [ClientMixture(0, vote_noisy), ClientMixture(CLIENTS, vote_noisy)], ids=["sums", "table"]
)
def test_noisy_clients_are_found(mixture: ClientMixture, cohorts: list[list[int]]) -> None:
    measured = vectors()
    aux, seen = rounds(mixture, measured, cohorts)
    found = [client for client in range(CLIENTS) if mixture.is_noisy(measured[client], seen[client], aux, client)]
    assert found == NOISY


def test_the_running_total_is_the_sum_over_all_clients_so_far() -> None:
    mixture, measured = ClientMixture(0, vote_noisy), vectors()
    aux, _ = rounds(mixture, measured, FEW)
    totals = aux["mixture"]
    assert float(totals[:, 0].sum()) == pytest.approx(CLIENTS, abs=1e-3)
    torch.testing.assert_close(totals[:, 1 + SIZE : 1 + 2 * SIZE].sum(dim=0), measured.sum(dim=0), rtol=1e-4, atol=1e-3)


def test_a_few_rounds_of_sums_are_expectation_maximization() -> None:
    """With everybody in each round, against the same steps written out."""
    measured = vectors(3)[:, :1].double()
    mixture = ClientMixture(0, split_clients)
    aux, states = mixture.init(1), [{} for _ in range(CLIENTS)]
    mean, std = float(measured.mean()), float(measured.std(correction=0))
    parts = [(mean - std, std**2, 0.5), (mean + std, std**2, 0.5)]
    for index in range(4):
        total = mixture.zero(aux)
        for client in range(CLIENTS):
            sent, states[client] = mixture.measure(
                measured[client], torch.ones(1, dtype=torch.bool), aux, states[client], client
            )
            total = add(total, sent)
        aux = mixture.server_update(aux, total)
        if index == 0:
            continue  # everybody's shares were equal
        shares = []
        for value in measured[:, 0].tolist():
            weights = [w / v**0.5 * np.exp(-((value - m) ** 2) / 2 / v) for m, v, w in parts]
            shares.append([weight / sum(weights) for weight in weights])
        parts = []
        for c in range(2):
            count = sum(share[c] for share in shares)
            m = sum(share[c] * value for share, value in zip(shares, measured[:, 0].tolist(), strict=True)) / count
            square = sum(share[c] * value**2 for share, value in zip(shares, measured[:, 0].tolist(), strict=True))
            parts.append((m, max(square / count - m**2, 1e-6), count / CLIENTS))
        means = aux["mixture"][:, 2] / aux["mixture"][:, 1]
        assert means.tolist() == pytest.approx([part[0] for part in parts], rel=1e-3)


@pytest.mark.parametrize(
    "mixture", [ClientMixture(0, vote_noisy), ClientMixture(CLIENTS, vote_noisy)], ids=["sums", "table"]
)
def test_entries_that_a_client_cannot_measure_do_not_count(mixture: ClientMixture) -> None:
    measured, seen = vectors(), torch.rand(CLIENTS, SIZE, generator=torch.Generator().manual_seed(1)) > 0.3
    seen[:, 0] = True
    wild = torch.where(seen, measured, torch.tensor(1e6))
    aux, _ = rounds(mixture, wild, EVERYBODY, seen)
    found = [client for client in range(CLIENTS) if mixture.is_noisy(wild[client], seen[client], aux, client)]
    assert len(set(found) ^ set(NOISY)) <= 2


@pytest.mark.parametrize("clients", [0, CLIENTS])
def test_at_first_nobody_is_noisy(clients: int) -> None:
    mixture = ClientMixture(clients, vote_noisy)
    assert not mixture.is_noisy(torch.ones(SIZE), torch.ones(SIZE, dtype=torch.bool), mixture.init(SIZE), 1)


def test_the_published_weights_fall_with_the_distance_to_the_nearest_clean_model() -> None:
    models = [{"w": torch.tensor([x]), "b": torch.tensor([0.0])} for x in (0.0, 1.0, 3.0, 5.0)]
    factors = published_factors(models, torch.tensor([False, False, True, True]))
    assert factors.tolist() == pytest.approx([1.0, 1.0, np.exp(-2 / 4), np.exp(-1)])
    assert published_factors(models, torch.tensor([True] * 4)).tolist() == [1.0] * 4  # nobody is clean
    assert published_factors(models, torch.tensor([False] * 4)).tolist() == [1.0] * 4
    assert model_distance(models[0], {"w": torch.tensor([3.0]), "b": torch.tensor([4.0])}) == pytest.approx(7.0)
