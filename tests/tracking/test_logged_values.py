"""What leaves the run folder, and what must not."""

from rofl.tracking import logged_values
from tests.flow.tiny import tiny
from tests.tracking.entries import ENTRY, SUMMARY


def test_a_round_is_numbers() -> None:
    assert logged_values.of_round(ENTRY) == {
        "accuracy/test": 50.0,
        "seconds/round": 0.5,
        "traffic/up": 22,
        "traffic/down": 11,
        "clients/dropped": 1,
        "training/loss": 1.5,
    }
    assert "accuracy/test" not in logged_values.of_round(ENTRY | {"accuracy": None})


def test_an_outcome_is_numbers_and_what_is_not_known_is_absent() -> None:
    assert logged_values.of_summary(SUMMARY) == {"summary/test_accuracy": 50.0, "summary/estimated_ratio": 0.25}


def test_nothing_that_names_a_sample_or_a_client_leaves() -> None:
    shared = logged_values.for_others(SUMMARY)
    assert "secret" in str(SUMMARY)
    assert "secret" not in str((shared, logged_values.of_summary(SUMMARY), logged_values.of_round(ENTRY)))
    assert shared["estimated"] == {"ratio": 0.25}
    assert shared["digest"] == "f7d5"


def test_settings_are_the_keys_of_the_command_line() -> None:
    flat = logged_values.settings(tiny())
    assert flat["data.train"] == 120
    assert flat["method.t_pl"] == 2
    assert logged_values.title(tiny(seed=3)) == "digits-rofl-3"
