"""Names of 0.1 keep working: in settings files, in `--set`, and in split files."""

from pathlib import Path

import pytest
import tomli_w

from rofl.config.overrides import apply_overrides, notices, parse_override, read_toml, upgrade
from rofl.config.schema import Experiment, all_keys, parse_experiment
from rofl.core.settings import RENAMED_KEYS, RENAMED_VALUES, rename
from rofl.data.federated import load_federated
from rofl.errors import UserError

SPLIT = Path(__file__).parents[1] / "data" / "split-0.1.safetensors"  # `rofl scene` of 0.1 wrote it
VALID = {  # a value for each old key that is not its default
    "data.each": 7,
    "data.minimum": 3,
    "data.light": 0.5,
    "data.scene": "file",
    "data.content": "abc",
    "data.only": 2,
    "data.owner": "me",
    "noise.spread": 0.2,
    "noise.whole_class": True,
    "method.lr_every": 3,
}


def value_of(experiment: Experiment, key: str) -> object:
    table, _, field = key.partition(".")
    found = getattr(experiment, table)
    return found[field] if isinstance(found, dict) else getattr(found, field)


def test_every_new_name_is_a_setting_and_no_old_one_is():
    known = set(all_keys({"method": {"name": "rofl"}}))
    assert set(RENAMED_KEYS.values()) <= known
    assert not set(RENAMED_KEYS) & known
    assert VALID.keys() == RENAMED_KEYS.keys()


@pytest.mark.parametrize("old", RENAMED_KEYS)
def test_an_old_key_works_in_a_settings_file(old, tmp_path):
    table, _, field = old.partition(".")
    settings = {"name": "x", "method": {"name": "rofl"}}
    settings[table] = {**settings.get(table, {}), field: VALID[old]}
    (tmp_path / "x.toml").write_text(tomli_w.dumps(settings))
    assert value_of(parse_experiment(read_toml(tmp_path / "x.toml")), RENAMED_KEYS[old]) == VALID[old]


@pytest.mark.parametrize("old", RENAMED_KEYS)
def test_an_old_key_works_as_a_change(old):
    text = f'{old}="{VALID[old]}"' if isinstance(VALID[old], str) else f"{old}={str(VALID[old]).lower()}"
    changes = dict([parse_override(text)])
    settings = apply_overrides({"name": "x", "method": {"name": "rofl"}}, changes)
    assert value_of(parse_experiment(settings), RENAMED_KEYS[old]) == VALID[old]
    assert notices(changes) == [f"{old} is now called {RENAMED_KEYS[old]}"]


def test_a_change_by_the_old_name_replaces_the_value_of_the_new_one():
    settings = apply_overrides({"name": "x", "data": {"brightness": 0.1}}, {"data.light": 0.5})
    assert settings["data"] == {"brightness": 0.5}
    settings = apply_overrides({"name": "x", "data": {"light": 0.1}}, {"data.brightness": 0.5})
    assert settings["data"] == {"brightness": 0.5}


@pytest.mark.parametrize(("key", "old"), RENAMED_VALUES)
def test_an_old_value_works(key, old):
    assert rename(key, old) == (key, RENAMED_VALUES[key, old])
    assert notices({key: old}) == [f"{key} = {old} is now called {key} = {RENAMED_VALUES[key, old]}"]
    path = {"path": "somewhere"} if old == "given" else {}
    chosen = parse_experiment({"name": "x", "data": {"partition": old, **path}})
    assert chosen.data.partition == RENAMED_VALUES[key, old]
    assert apply_overrides({"data": {"partition": "iid"}}, {key: old})["data"]["partition"] == RENAMED_VALUES[key, old]


def test_names_that_did_not_change_are_left_alone():
    settings = {"name": "light", "seed": 3, "data": {"name": "drawn", "alpha": 0.5}, "model": {"light": 1}}
    assert upgrade(settings) == settings
    assert notices({"data.brightness": 0.5, "data.partition": "iid", "seed": 1, "data.labels": "drawn"}) == []
    assert rename("data.partition", ["drawn"]) == ("data.partition", ["drawn"])


def test_what_is_upgraded_is_not_changed_by_it():
    settings = {"data": {"light": 0.5}}
    assert upgrade(settings) == {"data": {"brightness": 0.5}}
    assert settings == {"data": {"light": 0.5}}


# --- split files ---


def with_split(**changes) -> Experiment:
    noise = {"client_spread": 0.2, "fully_noisy_class": True, **changes.pop("noise", {})}
    data = {"train": 60, "split": str(SPLIT), **changes.pop("data", {})}
    return parse_experiment({"name": "x", "clients": 5, "cohort": 5, "noise": noise, "data": data, **changes})


def test_a_split_file_of_0_1_gives_the_labels_and_clients_that_are_drawn_today():
    read = load_federated(with_split().split)
    drawn = load_federated(with_split(data={"split": ""}, seed=3).split)
    assert read.labels.tolist() == drawn.labels.tolist()
    assert [part.tolist() for part in read.parts] == [part.tolist() for part in drawn.parts]
    assert 0.3 < read.noise_ratio < 0.6


@pytest.mark.parametrize(
    ("noise", "sentence", "hint"),
    [
        (
            {"client_spread": 0.1},
            "was written with noise.client_spread = 0.2, not 0.1.",
            "--set noise.client_spread=0.2",
        ),
        (
            {"fully_noisy_class": False},
            "was written with noise.fully_noisy_class = true, not false.",
            "--set noise.fully_noisy_class=true",
        ),
    ],
)
def test_other_settings_than_those_of_the_file_are_refused_by_their_new_names(noise, sentence, hint):
    with pytest.raises(UserError) as caught:
        load_federated(with_split(noise=noise).split)
    assert caught.value.sentence.endswith(sentence)
    assert caught.value.hint == hint
