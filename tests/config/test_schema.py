"""Settings: from presets, files and the command line; and what happens to wrong ones."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reproduce import some_data

import rofl
from rofl.config.overrides import apply_overrides, parse_override, read_toml
from rofl.config.presets import PRESETS, find_preset, preset
from rofl.config.schema import Experiment, all_keys, parse_experiment
from rofl.core.settings import RENAMED_KEYS, RENAMED_VALUES
from rofl.data import DATASETS
from rofl.errors import UserError
from rofl.methods import METHODS, FedAvg, Rofl
from rofl.models import MODELS

INFINITE, NOT_A_NUMBER = float("inf"), float("nan")


def nested(key: str, value: Any) -> dict[str, Any]:
    """{"a": {"b": value}} from "a.b"."""
    return apply_overrides({}, {key: value})


def refused(settings: dict[str, Any]) -> UserError:
    with pytest.raises(UserError) as error:
        parse_experiment(settings)
    return error.value


# --- wrong settings ---

MISSPELT = {
    "roundz": "rounds",
    "cohorts": "cohort",
    "client": "clients",
    "checkpoint-every": "checkpoint_every",
    "data.nam": "data.name",
    "data.partitions": "data.partition",
    "noise.ration": "noise.ratio",
    "noise.knd": "noise.kind",
    "model.widht": "model.width",
    "method.lamda_cen": "method.lambda_cen",
    "method.epoch": "method.epochs",
    "method.tpl": "method.t_pl",
}
UNKNOWN = {
    ("method.name", "roffl"): "rofl",
    ("method.name", "plane"): "plain",
    ("data.name", "digit"): "digits",
    ("data.name", "cifar"): "cifar10",
    ("model.name", "cnn"): "cnn9",
    ("noise.kind", "symetric"): "symmetric",
    ("data.partition", "dirichet"): "dirichlet",
    ("method.pseudo", "globl"): "global",
    ("method.cen_form", "summ"): "sum",
}


@pytest.mark.parametrize(("wrong", "right"), MISSPELT.items())
def test_a_misspelt_key_is_told_with_the_nearest_right_one(wrong: str, right: str) -> None:
    error = refused(nested(wrong, 1))
    assert repr(wrong) in error.sentence
    assert repr(right) in str(error)


@pytest.mark.parametrize(("key", "wrong", "right"), [(*key, right) for key, right in UNKNOWN.items()])
def test_an_unknown_name_is_told_with_the_nearest_right_one(key: str, wrong: str, right: str) -> None:
    error = refused(nested(key, wrong))
    assert repr(right) in str(error)
    assert key.rpartition(".")[2] in str(error) or repr(wrong) in str(error)


WRONG = [
    ("rounds", 0),
    ("rounds", -3),
    ("rounds", 1.5),
    ("rounds", "many"),
    ("rounds", None),
    ("clients", 0),
    ("cohort", 0),
    ("cohort", 21),  # of 20 clients
    ("seed", -1),
    ("seed", 2**63),
    ("evaluate_every", 0),
    ("checkpoint_every", 0),
    ("name", 7),
    ("noise.ratio", 1.0),
    ("noise.ratio", -0.1),
    ("noise.ratio", NOT_A_NUMBER),
    ("noise.ratio", "half"),
    ("noise.kind", "human"),  # on digits
    ("noise.labels", "best"),
    ("noise.client_spread", -0.1),
    ("noise.client_spread", 0.41),  # below 0 around 0.4
    ("noise.client_spread", NOT_A_NUMBER),
    ("noise.fully_noisy_class", "perhaps"),
    ("data.train", 0),
    ("data.train", "all"),
    ("data.validation", -1),
    ("data.min_samples", 0),
    ("data.alpha", 0.0),
    ("data.shards", 0),
    ("data.brightness", -0.1),
    ("data.brightness", 1.0),
    ("data.split", 3),
    ("data.name", 3),
    ("model.width", 0),
    ("model.width", 9),
    ("method.lr", 0),
    ("method.lr", NOT_A_NUMBER),
    ("method.lr", INFINITE),
    ("method.momentum", 1.0),
    ("method.weight_decay", -1),
    ("method.batch", 1),
    ("method.epochs", 0),
    ("method.tau", "unknown"),
    ("method.tau", 1.0),
    ("method.lambda_e", -1),
    ("method.lambda_e", INFINITE),
    ("method.mask", "perhaps"),
    ("method.t_pl", 0),
    ("method.name", 3),
    ("method.name", ["rofl"]),
    ("data", "digits"),
    ("data", 3),
    ("method", "rofl"),
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_wrong_value_is_told_with_its_key(key: str, value: Any) -> None:
    error = refused(nested(key, value))
    assert key.rpartition(".")[2] in error.sentence
    assert is_one_sentence_with_a_hint(error)


@pytest.mark.parametrize(("key", "value"), [*((key, 1) for key in MISSPELT), *UNKNOWN])
def test_a_wrong_name_is_one_sentence_and_one_thing_to_try(key: str, value: Any) -> None:
    assert is_one_sentence_with_a_hint(refused(nested(key, value)))


def is_one_sentence_with_a_hint(error: UserError) -> bool:
    return error.sentence.endswith(".") and "\n" not in str(error) and str(error).count("Try:") == 1


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({"method": "rofl"}, {"method.lr": 0.1}),
        ({"method": "rofl"}, {"method.name": "plain"}),
        ({"method": 3}, {"method.lr": 0.1}),
        ({}, {"method.name": ["plain"]}),
        ({"data": "digits"}, {"data.train": 5}),
    ],
)
def test_a_change_within_what_is_no_table_is_the_users_to_mend(
    settings: dict[str, Any], change: dict[str, Any]
) -> None:
    with pytest.raises(UserError):
        parse_experiment(apply_overrides(settings, change))


@pytest.mark.parametrize("change", [{"rounds.x": 1}, {"": 1}, {"a..b": 1}, {"data.name.x": 1}, {"noise": 3}])
def test_a_change_that_fits_nowhere_is_the_users_to_mend(change: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        parse_experiment(apply_overrides(find_preset("digits").settings, change))


def test_an_unknown_preset_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"There is no preset 'digit'\. Try: 'digits'"):
        preset("digit")


def test_a_file_that_is_no_toml_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("rounds = ")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name in ("broken.toml", "binary.toml", "absent.toml", "."):
        with pytest.raises(UserError, match="cannot be read as TOML"):
            read_toml(tmp_path / name)


# --- right settings ---


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    positive = st.floats(1e-9, 1e3)
    share = st.floats(0, 1, exclude_max=True)
    name = draw(st.sampled_from(sorted(METHODS)))
    method: dict[str, Any] = {
        "name": name,
        "lr": draw(positive),
        "momentum": draw(share),
        "batch": draw(st.integers(2)),
    }
    if name == "rofl":
        method |= {
            "tau": draw(share | st.just("known")),
            "t_pl": draw(st.integers(1, 10**6)),
            "soft": draw(st.booleans()),
            "pseudo": draw(st.sampled_from(["global", "naive", "none"])),
        }
    clients = draw(st.integers(1, 1000))
    return parse_experiment(
        {
            "name": draw(st.text(st.characters(codec="utf-8"), max_size=8)),
            "data": {
                "name": draw(st.sampled_from(sorted(DATASETS))),
                "train": draw(st.none() | st.integers(1, 10**6)),
                "partition": draw(st.sampled_from(["iid", "shards", "dirichlet"])),
                "alpha": draw(positive),
            },
            "noise": {"kind": draw(st.sampled_from(["symmetric", "pair"])), "ratio": draw(share)},
            "model": {"name": draw(st.sampled_from(sorted(MODELS))), "width": draw(st.floats(1e-3, 8))},
            "method": method,
            "rounds": draw(st.integers(1, 10**6)),
            "clients": clients,
            "cohort": draw(st.integers(1, clients)),
            "seed": draw(st.integers(0, 2**63 - 1)),
        }
    )


@given(experiments())
def test_an_experiment_survives_toml_exactly(chosen: Experiment) -> None:
    again = parse_experiment(tomllib.loads(chosen.toml()))
    assert again == chosen
    assert again.toml() == chosen.toml()
    assert again.build_method() == chosen.build_method()


@pytest.mark.parametrize("name", METHODS)
def test_toml_holds_every_setting(name: str) -> None:
    chosen = parse_experiment({"method": {"name": name}, "data": {"train": 5, "test": 6}})
    written = {
        f"{key}.{inner}" if inner else key
        for key, value in tomllib.loads(chosen.toml()).items()
        for inner in (value if isinstance(value, dict) else [""])
    }
    assert written == set(all_keys({"method": {"name": name}}))


def test_settings_left_out_get_their_defaults() -> None:
    chosen = parse_experiment({})
    assert chosen.method == {"name": "rofl", **vars(Rofl())}
    assert chosen == Experiment()


def test_tau_known_becomes_the_noise_ratio() -> None:
    method = preset("digits", noise__ratio=0.35).build_method()
    assert isinstance(method, Rofl)
    assert method.tau == 0.35
    fixed = preset("digits", noise__ratio=0.35, method__tau=0.1).build_method()
    assert isinstance(fixed, Rofl)
    assert fixed.tau == 0.1
    assert isinstance(preset("digits", method="plain").build_method(), FedAvg)


@pytest.mark.parametrize(("labels", "rate"), [("aggre", 0.0901), ("random2", 0.1812), ("worse", 0.4021)])
def test_tau_known_becomes_the_published_rate_of_peoples_labels(labels: str, rate: float) -> None:
    human = {"data": {"name": "cifar10"}, "noise": {"kind": "human", "labels": labels, "ratio": 0.7}}
    method = parse_experiment(human).build_method()
    assert isinstance(method, Rofl)
    assert method.tau == rate


@pytest.mark.parametrize("key", ["client_spread", "fully_noisy_class"])
def test_peoples_labels_cannot_be_spread_nor_a_class_of_them_be_made_wrong(key: str) -> None:
    settings = {
        "data": {"name": "cifar10"},
        "noise": {"kind": "human", key: True if key == "fully_noisy_class" else 0.1},
    }
    assert f"noise.{key} is for drawn noise" in refused(settings).sentence


@pytest.mark.parametrize(("ratio", "spread"), [(0.4, 0.4), (0.5, 0.49), (0.4, 0.2), (0.0, 0.0)])
def test_a_spread_within_bounds_is_welcome_with_a_whole_class_too(ratio: float, spread: float) -> None:
    noise = parse_experiment({"noise": {"ratio": ratio, "spread": spread, "whole_class": True}}).noise
    assert noise.per_client
    assert noise.expected_ratio == ratio
    assert parse_experiment({"noise": {"ratio": ratio, "spread": spread}}).noise.per_client == (spread > 0)


def test_a_spread_that_reaches_1_is_refused() -> None:
    error = refused({"noise": {"ratio": 0.6, "spread": 0.4}})
    assert "noise.client_spread = 0.4 around noise.ratio = 0.6 goes from 0.2 to 1," in error.sentence
    assert is_one_sentence_with_a_hint(error)


def test_an_experiment_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        preset("digits").rounds = 3


def test_a_change_of_method_keeps_what_the_new_one_has_too() -> None:
    settings = {"rounds": 3, "method": {"name": "rofl", "lr": 0.3, "tau": 0.1, "t_pl": 7}}
    changed = apply_overrides(settings, {"method.name": "plain"})
    assert changed == {"rounds": 3, "method": {"name": "plain", "lr": 0.3}}
    assert settings["method"] == {"name": "rofl", "lr": 0.3, "tau": 0.1, "t_pl": 7}  # untouched
    assert apply_overrides(settings, {"method.name": "rofl"}) == settings


def test_changes_of_the_new_method_count_whatever_their_order() -> None:
    settings = {"method": {"name": "plain", "lr": 0.3}}
    for order in (["method.name", "method.tau"], ["method.tau", "method.name"]):
        values = {"method.name": "rofl", "method.tau": 0.2}
        changed = apply_overrides(settings, {key: values[key] for key in order})
        assert changed == {"method": {"name": "rofl", "lr": 0.3, "tau": 0.2}}


def test_a_setting_of_the_old_method_is_refused_for_the_new_one() -> None:
    settings = apply_overrides(find_preset("digits").settings, {"method.name": "plain", "method.t_pl": 3})
    assert "'method.t_pl'" in str(refused(settings))


def test_changes_do_not_touch_the_preset() -> None:
    before = find_preset("digits").settings
    frozen = repr(before)
    preset("digits", noise__ratio=0.1, method="plain", data__train=7, rounds=2)
    assert repr(before) == frozen


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("rounds=3", "rounds", 3),
        ("noise.ratio=0.4", "noise.ratio", 0.4),
        ("noise.kind=pair", "noise.kind", "pair"),
        ("noise.kind='pair'", "noise.kind", "pair"),
        ("method.mask=false", "method.mask", False),
        ("method.lr=1e-3", "method.lr", 0.001),
        (" rounds = 3 ", "rounds", 3),
        ("name=a=b", "name", "a=b"),
        ("name=", "name", ""),
    ],
)
def test_a_change_on_the_command_line_is_read_as_toml_or_text(text: str, key: str, value: Any) -> None:
    found = parse_override(text)
    assert found == (key, value)
    assert type(found[1]) is type(value)


@pytest.mark.parametrize("text", ["rounds", "", "=3", " =3"])
def test_a_change_without_key_or_value_is_the_users_to_mend(text: str) -> None:
    with pytest.raises(UserError, match="key=value"):
        parse_override(text)


# --- presets ---


def test_there_are_as_many_presets_as_we_know_of() -> None:
    assert len(PRESETS) == 12


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_and_says_what_it_is(name: str) -> None:
    chosen = preset(name)
    assert chosen.name == name
    assert chosen.build_method()
    assert PRESETS[name].about
    assert parse_experiment(tomllib.loads(chosen.toml())) == chosen


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_for_every_method(name: str, method: str) -> None:
    chosen = preset(name, method=method)
    assert chosen.method["name"] == method
    assert isinstance(chosen.build_method(), METHODS[method])
    assert chosen.model_dump(exclude={"method"}) == preset(name).model_dump(exclude={"method"})
    assert chosen.method.items() >= PRESETS[name].methods.get(method, {}).items()
    late = {chosen.method[key] for key in ("t_pl", "start") if isinstance(chosen.method.get(key), int)}
    assert all(start < chosen.rounds for start in late)  # what starts late starts at all


@pytest.fixture(scope="module")
def some_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return some_data.write(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("name", PRESETS)
def test_every_presets_data_and_network_go_through_a_round(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    embedded = preset(name).data.name == "digits"
    files = None if embedded else request.getfixturevalue("some_files")
    few: dict[str, Any] = {"data.train": 12, "data.test": 4, "clients": 2, "cohort": 1, "rounds": 1, "method.epochs": 1}
    if name in ("clothing1m", "covidx"):
        few |= {"model.weights": "", "model.width": 0.125}  # large images; published weights fit one width only
    small = parse_experiment(apply_overrides(PRESETS[name].settings, few))
    done = rofl.run(small, tmp_path / "run", workers=0, data_dir=files)
    assert done.summary.dropped == 0
    assert done.summary.dataset == preset(name).data.name
    assert len(done.history) == 1


# --- docs/settings.md ---

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()


def first_cells(text: str) -> set[str]:
    """Everything in code marks in the first column of a page's tables."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_page_lists_every_setting_by_its_present_name_and_no_other() -> None:
    listed, _, _ = PAGE.partition("## Renamed settings")
    known = {key for name in METHODS for key in all_keys({"method": {"name": name}})}
    assert first_cells(listed) == known


def test_the_page_lists_every_renamed_setting_with_both_names() -> None:
    _, _, renamed = PAGE.partition("## Renamed settings")
    pairs = {**RENAMED_KEYS, **{f"{key} = {old}": f"{key} = {new}" for (key, old), new in RENAMED_VALUES.items()}}
    assert first_cells(renamed) == pairs.keys()
    assert all(f"| `{old}` | `{new}` |" in renamed for old, new in pairs.items())
