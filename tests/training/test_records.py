"""The records of a run: what is written is read back, files of 0.1 are read too, and the schema is published."""

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError
from tests.flow.tiny import tiny

import rofl
from rofl.training.records import FORMAT, RoundRecord, RunSummary, Traffic
from rofl.training.run_dir import RunDir

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests" / "fixtures" / "run-0.1"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> rofl.Run:
    return rofl.run(tiny(rounds=2), tmp_path_factory.mktemp("runs") / "run", workers=0)


def test_the_published_schema_is_that_of_the_record() -> None:
    """To write it anew: python -m tests.training.test_records."""
    assert json.loads((ROOT / "docs" / "summary.schema.json").read_text()) == schema()


def schema() -> dict[str, object]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **RunSummary.model_json_schema()}


def test_a_summary_follows_the_schema_and_comes_back_as_it_was(done: rofl.Run) -> None:
    content = json.loads((done.folder / "summary.json").read_text())
    jsonschema.validate(content, schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**content, "rounds": "two"}, schema())
    assert content["format"] == FORMAT
    assert RunSummary.model_validate(content) == done.summary


def test_every_field_is_described(done: rofl.Run) -> None:
    text = (ROOT / "docs" / "run-folder.md").read_text()
    names = {*RunSummary.model_fields, *RoundRecord.model_fields, *Traffic.model_fields}
    assert sorted(name for name in names if f"`{name}`" not in text) == []
    files = {path.name for path in done.folder.iterdir() if path.is_file()}
    assert sorted(name for name in files if f"`{name}`" not in text) == []


def test_a_round_of_0_1_is_read() -> None:
    line = '{"round": 3, "accuracy": null, "seconds": 1.5, "cohort": [2], "dropped": {}, "metrics": {"loss": 0.5}, '
    line += '"traffic": {"down_model": 4, "down_extra": 3, "up_model": 2, "up_extra": 1}}'
    record = RoundRecord.model_validate_json(line)
    assert (record.traffic.down, record.traffic.up, record.traffic.down_aux) == (7, 3, 3)
    assert RoundRecord.model_validate_json(record.model_dump_json()) == record


def test_records_cannot_be_changed_and_refuse_what_is_no_number(done: rofl.Run) -> None:
    with pytest.raises(ValidationError):
        done.summary.rounds = 3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        RoundRecord.model_validate({"round": "three"})


def test_a_finished_run_of_0_1_is_read() -> None:
    run = rofl.resume(OLD / "finished")
    assert run.summary.format == 1
    assert run.summary.noise.client_spread == run.experiment.noise.client_spread == 0.2
    assert run.summary.audit is not None
    assert run.summary.audit.recall == 0.0
    assert [record.round for record in run.history] == [1, 2, 3, 4]
    assert run.history[-1].traffic.down_aux > 0
    assert RunDir(OLD / "finished").audit.read_suspects()


def test_the_accuracy_of_suggestions_has_its_name_of_0_1(done: rofl.Run) -> None:
    content = done.summary.model_dump()
    old = {"precision": 0.5, "recall": 0.25, "f1": 0.3, "average_precision": 0.4, "right_suggestions": 0.75}
    found = RunSummary.model_validate({**content, "audit": old}).audit
    assert found is not None
    assert found.suggestion_accuracy == 0.75


@pytest.mark.parametrize("name", ["stopped", "stopped-joint"])
def test_a_run_that_0_1_left_unfinished_goes_on(tmp_path: Path, name: str) -> None:
    """Its checkpoint says `extra` and `entry`, its settings `lr_every`, and joint optimization keeps client states."""
    shutil.copytree(OLD / name, tmp_path / "run")
    assert rofl.resume(tmp_path / "run", workers=0).summary.format == FORMAT
    assert [record.round for record in RunDir(tmp_path / "run").read_history()] == [1, 2, 3, 4]


if __name__ == "__main__":
    (ROOT / "docs" / "summary.schema.json").write_text(json.dumps(schema(), indent=2) + "\n")
