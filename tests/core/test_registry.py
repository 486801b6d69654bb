"""Names of methods, networks and data sets: built in, from installed packages, and by their place in Python."""

import sys
from importlib.metadata import entry_points

import pytest

from rofl.core.registry import Registry
from rofl.data import DATASETS, load_dataset
from rofl.errors import UserError
from rofl.methods import METHODS
from rofl.models import MODELS

GROUP = "rofl.fruit"


@pytest.fixture
def fruit() -> Registry[str]:
    return Registry("fruit", GROUP, {"apple": "red", "pear": "green"})


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that is not ours, as pip would install it."""
    (tmp_path / "orchard.py").write_text(
        "plum = 'blue'\nclass Tree:\n    cherry = 'dark'\n\ndef load(folder):\n    '''Nothing.'''\n    return folder\n"
    )
    (tmp_path / "broken.py").write_text("import no_such_package\n")
    (tmp_path / "failing.py").write_text("raise ValueError('it is winter')\n")
    info = tmp_path / "orchard-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: orchard\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\nplum = orchard:plum\ncherry = orchard:Tree.cherry\napple = orchard:plum\n"
        "gone = orchard:fig\nbad = broken:anything\n\n[rofl.datasets]\norchard = orchard:load\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("orchard", "broken", "failing"):
        sys.modules.pop(name, None)


def test_a_registry_is_a_dictionary_of_what_is_built_in(fruit):
    assert dict(fruit) == {"apple": "red", "pear": "green"}
    assert fruit.find("pear") == "green"
    assert fruit.names() == ["apple", "pear"]
    fruit["quince"] = "yellow"
    assert fruit.find("quince") == "yellow"
    assert fruit.names() == ["apple", "pear", "quince"]


def test_installed_packages_add_to_it(fruit, installed):
    assert fruit.find("plum") == "blue"
    assert fruit.find("cherry") == "dark"
    assert "plum" not in fruit  # it is imported when it is asked for
    assert fruit.names() == ["apple", "pear", "bad", "cherry", "gone", "plum"]


def test_names_are_listed_without_an_import(fruit, installed):
    fruit.names()
    assert "orchard" not in sys.modules


def test_a_package_cannot_replace_what_is_built_in(fruit, installed):
    assert len(entry_points(group=GROUP, name="apple")) == 1
    assert fruit.find("apple") == "red"


def test_a_name_with_a_colon_is_imported(fruit, installed):
    assert fruit.find("orchard:plum") == "blue"
    assert fruit.find("orchard:Tree.cherry") == "dark"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere:plum", "No module named 'nowhere'"),
        ("orchard:fig", "has no attribute 'fig'"),
        ("orchard:Tree.fig", "has no attribute 'fig'"),
        ("orchard:", "has no attribute ''"),
        (":plum", "Empty module name"),
        ("broken:x", "No module named 'no_such_package'"),
        ("failing:x", "it is winter"),
        ("gone", "has no attribute 'fig'"),
        ("bad", "No module named 'no_such_package'"),
    ],
)
def test_what_cannot_be_imported_is_one_sentence(fruit, installed, name, reason):
    with pytest.raises(UserError) as caught:
        fruit.find(name)
    assert caught.value.sentence.startswith(f"The fruit {name!r} cannot be imported (")
    assert reason in caught.value.sentence
    assert "package.module:name" in caught.value.hint


def test_an_unknown_name_gets_the_nearest_one(fruit, installed):
    with pytest.raises(UserError) as caught:
        fruit.find("plums")
    assert caught.value.sentence == "There is no fruit 'plums'."
    assert caught.value.hint == "'plum' (there are: apple, bad, cherry, gone, pear, plum)"


@pytest.mark.parametrize("name", [None, 3, ["apple"], {}])
def test_a_name_is_text(fruit, name):
    with pytest.raises(UserError, match="The name of a fruit is text, not"):
        fruit.find(name)


@pytest.mark.parametrize("registry", [METHODS, MODELS, DATASETS], ids=["methods", "models", "data sets"])
def test_every_built_in_name_is_found(registry):
    assert len(registry) >= 5 or registry is MODELS
    for name, value in registry.items():
        assert registry.find(name) is value
    assert {METHODS.group, MODELS.group, DATASETS.group} == {"rofl.methods", "rofl.models", "rofl.datasets"}


def test_a_data_set_of_a_package_is_loaded_from_the_folder_of_its_name(installed, tmp_path):
    assert load_dataset("orchard", tmp_path) == tmp_path / "orchard"
    assert "orchard" in DATASETS.names()
