"""Clients whose rows are made when they are asked for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.rng import generator, sample
from rofl.data.client_dataset import SampledClients, client_rows, client_sizes, partition_to_tensors


@given(st.integers(1, 300), st.integers(0, 320), st.integers(0, 2**40))
def test_a_draw_is_the_beginning_of_a_permutation(population: int, count: int, seed: int) -> None:
    whole = torch.randperm(population, generator=generator(seed, "test")).tolist()
    assert sample(population, count, generator(seed, "test")) == whole[:count]


def test_a_draw_of_a_thousand_is_the_beginning_of_a_permutation_of_a_million() -> None:
    whole = torch.randperm(10**6, generator=generator(1, "test"))
    assert sample(10**6, 1000, generator(1, "test")) == whole[:1000].tolist()


@given(st.integers(2, 200), st.integers(1, 10**9), st.integers(2, 20), st.integers(0, 2**62), st.data())
def test_a_client_holds_what_it_held_before_and_no_row_twice(
    samples: int, clients: int, each: int, seed: int, data: st.DataObject
) -> None:
    parts, client = SampledClients(samples, clients, each, seed), data.draw(st.integers(0, clients - 1))
    rows = parts[client]
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert len(rows) == min(each, samples)
    assert 0 <= int(rows[0]) <= int(rows[-1]) < samples
    assert torch.equal(client_rows(client, partition_to_tensors(parts)), rows)
    with pytest.raises(IndexError):
        parts[clients]


def test_clients_differ_and_together_hold_everything() -> None:
    parts = SampledClients(samples=100, clients=200, samples_per_client=10, seed=0)
    assert len({tuple(rows.tolist()) for rows in parts}) == 200
    assert sorted(torch.cat(list(parts)).unique().tolist()) == list(range(100))


def test_a_population_takes_no_memory() -> None:
    parts = SampledClients(samples=1000, clients=10**9, samples_per_client=50, seed=0)
    assert (
        sum(
            tensor.untyped_storage().nbytes() for tensor in (*partition_to_tensors(parts).values(), client_sizes(parts))
        )
        < 100
    )
    assert len(client_sizes(parts)) == 10**9
    assert int(client_sizes(parts)[123_456_789]) == 50


def test_rows_that_are_held_come_back() -> None:
    held = [torch.tensor([3, 5]), torch.tensor([], dtype=torch.long), torch.tensor([0])]
    tensors = partition_to_tensors(held)
    assert [client_rows(client, tensors).tolist() for client in range(3)] == [[3, 5], [], [0]]
    assert client_sizes(held) == [2, 0, 1]
