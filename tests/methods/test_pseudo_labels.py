"""Pseudo-labels are the model's own, whenever and in whatever portions it is asked."""

from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.data import ClientDataset
from rofl.methods import pseudo_labels
from rofl.methods.inference import forward, predict_client
from rofl.methods.pseudo_labels import PseudoLabels
from tests.methods import toy

COUNT, CHUNK = 24, 5
DATA = toy.noisy(range(8, 8 + COUNT))  # rows and places differ
NET = toy.network()

Looks = list[list[int]]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """The rows that a model was shown, call by call; a client has more than one chunk of them."""
    calls: Looks = []

    def spy(predictor, pixels, transform, rows):
        calls.append(rows.tolist())
        return forward(predictor, pixels, transform, rows)

    monkeypatch.setattr(pseudo_labels, "forward", spy)
    monkeypatch.setattr(pseudo_labels, "CHUNK", CHUNK)
    return calls


def ask(labels: PseudoLabels, index: list[int], wanted: Callable[[int], bool] = lambda place: True) -> torch.Tensor:
    return labels.of(torch.tensor(index), torch.tensor([wanted(place) for place in index]))


def expected(soft: bool, data: ClientDataset = DATA) -> torch.Tensor:
    logits, _ = predict_client(NET, data)
    return logits.softmax(dim=1) if soft else logits.argmax(dim=1)


@pytest.mark.parametrize("soft", [True, False])
@given(st.lists(st.lists(st.tuples(st.integers(0, COUNT - 1), st.booleans()), min_size=1, max_size=8), max_size=12))
def test_labels_are_those_of_one_pass_over_all(soft, batches):
    with patch.object(pseudo_labels, "CHUNK", CHUNK):
        labels = PseudoLabels(NET, DATA, soft)
    all_of_them = expected(soft)
    for batch in batches:
        index, wanted = (torch.tensor(column) for column in zip(*dict(batch).items(), strict=True))
        found = labels.of(index, wanted)
        torch.testing.assert_close(found[wanted], all_of_them[index[wanted]])


def test_only_what_is_wanted_is_looked_at_and_never_twice(looks: Looks) -> None:
    labels = PseudoLabels(NET, DATA, soft=True)
    assert looks == []
    ask(labels, [0, 1, 2, 3], wanted=lambda place: place in (1, 3))
    ask(labels, [1, 2, 3, 4], wanted=lambda place: place < 4)
    ask(labels, [1, 2, 3])
    assert looks == [[9, 11], [10]]


def test_where_most_was_asked_for_the_rest_is_looked_at_in_one_go(looks: Looks) -> None:
    labels = PseudoLabels(NET, DATA, soft=True)
    ask(labels, list(range(16)))  # two thirds
    assert len(looks[-1]) == 16
    ask(labels, [3, 20, 17], wanted=lambda place: place < 20)
    assert looks[-1] == list(range(8 + 16, 8 + COUNT))
    ask(labels, list(range(COUNT)))
    assert len(looks) == 2


def test_a_client_of_one_chunk_is_looked_at_in_one_go(looks: Looks) -> None:
    labels = PseudoLabels(NET, toy.noisy(range(CHUNK)), soft=True)
    ask(labels, [2])
    assert looks == [list(range(CHUNK))]


def test_predictions_that_are_there_already_are_taken(looks: Looks) -> None:
    labels, logits = PseudoLabels(NET, DATA, soft=False), predict_client(NET, DATA)[0]
    labels.learn(torch.arange(COUNT), logits)
    assert torch.equal(ask(labels, list(range(COUNT))), logits.argmax(dim=1))
    assert looks == []


def test_the_model_that_was_given_labels_though_it_is_trained_on(looks: Looks) -> None:
    net = toy.network()
    labels = PseudoLabels(net, DATA, soft=True)
    with torch.no_grad():
        for weight in net.parameters():
            weight.zero_()
    torch.testing.assert_close(ask(labels, [4, 7]), expected(soft=True)[[4, 7]])
