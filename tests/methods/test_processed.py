"""Postprocessors as a list: order, what they see, and that an exact integer encoding fits among them."""

from dataclasses import dataclass, replace

import pytest
import torch

from rofl.core.tensors import check_like, digest
from rofl.methods import METHODS, Method, RoundContext, ServerState, Update
from rofl.methods.base import wire_bytes
from rofl.methods.postprocessors import Bfloat16, FixedPoint, GaussianDP, Postprocessor, ServerStep
from rofl.methods.processed import ProcessedMethod, with_postprocessors
from tests.methods import toy

CLIENTS = list(toy.clients().values())
CTX = RoundContext(1, toy.SEED)


@dataclass(frozen=True)
class Noting(Postprocessor):
    """Notes in the weight of an update which postprocessors it passed, and in which order they were undone."""

    digit: int

    def client_update(
        self, update: Update, server_state: ServerState, ctx: RoundContext, server_step: ServerStep
    ) -> Update:
        return replace(update, weight=update.weight * 10 + self.digit)

    def server_update(
        self, server_state: ServerState, total: Update, ctx: RoundContext, server_step: ServerStep
    ) -> ServerState:
        assert total.weight % 10 == self.digit
        return server_step(server_state, replace(total, weight=total.weight // 10), ctx)


def test_the_server_undoes_the_list_from_its_end() -> None:
    method = toy.build("plain")
    noting = ProcessedMethod(method, (Noting(1), Noting(2)))
    server_state = method.init(toy.network())
    update, plain = (toy.train(one, server_state, CLIENTS[4], 1) for one in (noting, method))
    assert (plain.weight, update.weight) == (2.0, 212.0)
    expected = method.server_update(server_state, plain, CTX)
    assert digest(noting.server_update(server_state, update, CTX).model) == digest(expected.model)


def test_no_postprocessors_leave_the_method_itself() -> None:
    method = toy.build("rofl")
    assert with_postprocessors(method, []) is method


@pytest.mark.parametrize(
    "before",
    [(), (GaussianDP(clip=0.5, noise=0.5, cohort=5),), (Bfloat16(),)],
    ids=["alone", "after privacy", "after rounding"],
)
@pytest.mark.parametrize("name", METHODS)
def test_a_fixed_point_encoding_fits_and_adds_exactly_in_any_order(
    name: str, before: tuple[Postprocessor, ...]
) -> None:
    inside = toy.build(name, epochs=1)
    method = with_postprocessors(inside, before)
    encoded = ProcessedMethod(inside, (*before, FixedPoint(cohort=len(CLIENTS))))
    server_state = encoded.init(toy.network())
    zero = encoded.zero_update(server_state)
    updates = [toy.train(encoded, server_state, data, 1, client) for client, data in enumerate(CLIENTS)]
    assert all(value.dtype == torch.int64 for value in [*zero.model.values(), *zero.aux.values()])
    for update in updates:
        assert check_like(update.model, zero.model) is check_like(update.aux, zero.aux) is None
    forward, backward = sum(updates, start=zero), sum(reversed(updates), start=zero)
    assert toy.bits(forward) == toy.bits(backward)  # the weight and the metrics among them
    plain = [toy.train(method, server_state, data, 1, client) for client, data in enumerate(CLIENTS)]
    total = sum(plain, start=method.zero_update(server_state))
    expected = method.server_update(server_state, total, CTX)
    found = encoded.server_update(server_state, forward, CTX)
    torch.testing.assert_close(found.model, expected.model, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.aux, expected.aux, rtol=1e-5, atol=1e-6)
    assert forward.weight == total.weight
    assert forward.metrics == pytest.approx(dict(total.metrics), abs=1e-4)
    assert all(forward.metrics[count] == total.metrics[count] for count in ("samples",) if count in total.metrics)


def test_an_update_that_cannot_be_fixed_point_is_an_error_that_names_the_tensor() -> None:
    method = toy.build("plain")
    server_state = method.init(toy.network())
    update = toy.train(method, server_state, CLIENTS[0], 1)
    fixed, name = FixedPoint(cohort=2), next(iter(update.model))
    for value, problem in ((float("nan"), "is not finite"), (1e36, "has a value above")):
        spoilt = replace(update, model={**update.model, name: update.model[name] * 0 + value})
        with pytest.raises(ValueError, match=f"{name!r} {problem}"):
            fixed.client_update(spoilt, server_state, CTX, method.server_update)


def test_bytes_on_the_wire_are_those_of_the_last_form() -> None:
    tensors = {"w": torch.zeros(3, 5), "steps": torch.zeros(2, dtype=torch.int64)}
    method: Method = toy.build("plain")
    assert wire_bytes(method, tensors) == 4 * 15 + 8 * 2
    assert wire_bytes(ProcessedMethod(method, (Bfloat16(),)), tensors) == 2 * 15 + 8 * 2
    private = ProcessedMethod(method, (GaussianDP(1.0, 1.0, 2), Bfloat16()))
    assert wire_bytes(private, tensors) == 2 * 15 + 8 * 2


def test_noise_and_setting_reach_the_method_inside() -> None:
    rounded = ProcessedMethod(toy.build("rofl", tau="known"), (Bfloat16(),))
    assert rounded.with_noise_rate("symmetric", 0.3) == ProcessedMethod(toy.build("rofl", tau=0.3), (Bfloat16(),))
    assert rounded.centralized() == ProcessedMethod(toy.build("rofl", tau="known").centralized(), (Bfloat16(),))
