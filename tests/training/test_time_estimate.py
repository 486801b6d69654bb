import pytest

import rofl
from rofl.methods import METHODS
from rofl.training.time_estimate import PUBLISHED, DataSize, core_seconds, estimate_seconds

SIZE = DataSize(train=1000, test=100, shape=(5, 1, 1), classes=3, is_table=True)


def table(**changes):
    return rofl.preset("digits", **{"model__name": "mlp", "rounds": 20, "clients": 10, "cohort": 10, **changes})


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_timed_on_a_table_and_on_images(method):
    assert core_seconds(table(method=method), SIZE) > 0
    assert core_seconds(rofl.preset("digits", method=method), PUBLISHED["digits"]) > 0


def test_time_grows_with_rounds_epochs_and_clients_and_falls_with_workers():
    once = core_seconds(table(method__epochs=1), SIZE)
    assert core_seconds(table(rounds=40, method__epochs=1), SIZE) > 1.9 * once
    assert core_seconds(table(), SIZE) > 4 * once
    assert core_seconds(table(cohort=5, method__epochs=1), SIZE) < once
    assert estimate_seconds(table(), SIZE, workers=2) == core_seconds(table(), SIZE) / 2
    assert estimate_seconds(table(cohort=1), SIZE, workers=8) == core_seconds(table(cohort=1), SIZE)
    assert estimate_seconds(table(), SIZE, workers=0) == core_seconds(table(), SIZE)


def test_clients_that_share_samples_count_theirs():
    sampled = {"data__partition": "sampled", "method__epochs": 1, "clients": 10_000, "cohort": 10}
    few = core_seconds(table(**sampled, data__samples_per_client=10), SIZE)
    assert core_seconds(table(**sampled, data__samples_per_client=100), SIZE) > 3 * few
