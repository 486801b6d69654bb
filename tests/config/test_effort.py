import pytest

from rofl.config.presets.effort import run_size


@pytest.mark.parametrize(
    ("side", "samples", "model", "epochs", "rounds"),
    [
        (8, 1_000, {"name": "small"}, 5, 30),
        (16, 20_000, {"name": "small"}, 1, 20),
        (28, 300, {"name": "cnn9", "width": 0.25}, 5, 30),
        (28, 6_000, {"name": "cnn9", "width": 0.125}, 3, 30),  # 30 x 3 x 6000 x 2.6 ms x (28 / 32)^2 = 1075 s of 1200
        (64, 2_000, {"name": "cnn9", "width": 0.125}, 1, 30),
        (32, 10**6, {"name": "cnn9", "width": 0.125}, 1, 15),  # nothing fits: the smallest
    ],
)
def test_more_images_get_a_smaller_network_and_fewer_epochs(side, samples, model, epochs, rounds):
    size = run_size(side, samples)
    assert (size.model, size.epochs, size.rounds) == (model, epochs, rounds)
    assert size.relabel_round == rounds // 3


def test_quick_is_never_larger_than_the_default_and_thorough_is_the_papers():
    for samples in (50, 500, 5_000, 50_000):
        quick, default = run_size(32, samples, "quick"), run_size(32, samples)
        assert (quick.model["width"], quick.rounds) <= (default.model["width"], default.rounds)
    thorough = run_size(32, 50_000, "thorough")
    assert (thorough.model, thorough.epochs, thorough.rounds) == ({"name": "cnn9", "width": 1.0}, 5, 100)


def test_a_site_has_its_own_core_and_its_own_images():
    assert run_size(32, 1_000, cores=1).epochs <= run_size(32, 1_000, cores=2).epochs
