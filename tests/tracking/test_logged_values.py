"""What leaves the run folder, and what must not."""

from rofl.tracking import logged_values
from rofl.training.held_out import Evaluation
from tests.flow.tiny import tiny
from tests.tracking.entries import RECORD, SUMMARY


def test_a_round_is_numbers() -> None:
    assert logged_values.round_values(RECORD) == {
        "accuracy/test": 50.0,
        "seconds/round": 0.5,
        "traffic/up": 22,
        "traffic/down": 11,
        "clients/dropped": 1,
        "training/loss": 1.5,
    }
    assert "accuracy/test" not in logged_values.round_values(RECORD.with_evaluation(Evaluation()))


def test_an_outcome_is_numbers_and_what_is_not_known_is_absent() -> None:
    assert logged_values.summary_values(SUMMARY) == {
        "summary/test_accuracy": 50.0,
        "summary/seconds": 1.5,
        "summary/seconds_per_round": 0.5,
        "summary/bytes_up": 66,
        "summary/bytes_down": 33,
        "summary/centroid_share": 0.0,
        "summary/dropped": 0,
        "summary/estimated_ratio": 0.25,
    }


def test_nothing_that_names_a_sample_or_a_client_leaves() -> None:
    shared = logged_values.public_summary(SUMMARY)
    assert str(SUMMARY).count("secret") == 3
    assert "secret" in str(RECORD)
    assert "secret" not in str((shared, logged_values.summary_values(SUMMARY), logged_values.round_values(RECORD)))
    assert shared["estimated"] == {"ratio": 0.25}
    assert shared["digest"] == "f7d5"


def test_settings_are_the_keys_of_the_command_line() -> None:
    flat = logged_values.setting_values(tiny())
    assert flat["data.train"] == 120
    assert flat["method.t_pl"] == 2
    assert logged_values.run_title(tiny(seed=3)) == "digits-rofl-3"
