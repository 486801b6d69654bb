"""A run folder from elsewhere may have links in it, which lead to files that its sender wants read, changed or gone."""

import shutil
from pathlib import Path

import pytest

import rofl
from rofl.errors import UserError
from rofl.methods import METHODS
from rofl.training.run_dir import RunDir
from tests.flow.tiny import METHODS_OF_TESTS, Killed, kill_after, tiny


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "remember", METHODS_OF_TESTS["remember"])


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after two rounds, whose clients keep states."""
    folder: Path = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "remember", METHODS_OF_TESTS["remember"])
        with pytest.raises(Killed):
            rofl.run(tiny(method="remember", rounds=3), folder, workers=0, listener=kill_after(2))
    return folder


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_elsewhere_are_not_cleared_away_as_old_client_states(run: Path, tmp_path: Path) -> None:
    """Old states are deleted after each checkpoint. The states of the run are beside the user's own files here."""
    home = Path(shutil.move(run / "states", tmp_path / "home"))
    (home / "thesis.txt").write_text("three years of work")
    before = contents(home)
    (run / "states").symlink_to(home)
    with pytest.raises(UserError, match="states is a link, and links are not followed"):
        rofl.resume(run, workers=0)
    assert contents(home) == before


def test_a_file_that_no_run_wrote_stays_among_client_states(run: Path) -> None:
    (run / "states" / "notes.txt").write_text("of the user")
    (run / "states" / "folder").mkdir()
    rofl.resume(run, workers=0)
    assert (run / "states" / "notes.txt").read_text() == "of the user"


@pytest.mark.parametrize("name", [".lock", "config.toml", "metrics.jsonl", "checkpoint.safetensors", "photos/one.png"])
@pytest.mark.parametrize("elsewhere", ["there", "absent"])
def test_a_link_anywhere_in_a_run_folder_is_refused(run: Path, tmp_path: Path, name: str, elsewhere: str) -> None:
    """Where it leads nowhere, a file would be made."""
    path, target = run / name, tmp_path / "elsewhere"
    path.parent.mkdir(exist_ok=True)
    if elsewhere == "there":
        target.write_bytes(path.read_bytes() if path.exists() else b"mine")
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"is a link|no config"):
        rofl.resume(run, workers=0)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["config.toml", "serve.toml"])
def test_settings_are_not_read_through_a_link(run: Path, tmp_path: Path, name: str) -> None:
    from rofl.federation.server_config import ServerConfig

    target = Path(shutil.copy(run / "config.toml", tmp_path / "elsewhere"))
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(target)
    with pytest.raises(UserError, match=rf"{name} cannot be read as TOML \(it is a link\)"):
        RunDir(run).read_experiment() if name == "config.toml" else ServerConfig.read(run)


def test_a_folder_that_a_user_names_may_be_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    rofl.resume(tmp_path / "link", workers=0)
    assert (run / "summary.json").is_file()


@pytest.mark.parametrize("name", ["federation-log.jsonl", "flower", "flower/masks", "flower/masks/key"])
def test_a_site_joins_in_no_folder_with_links_in_its_own_files(tmp_path: Path, name: str) -> None:
    """Its log grows at its end, keys are made, and what is left of both is deleted."""
    from rofl.federation.site import SiteConfig, join

    path, home = tmp_path / "site" / name, tmp_path / "home"
    path.parent.mkdir(parents=True)
    home.mkdir()
    path.symlink_to(home if name.startswith("flower") else home / "log")
    with pytest.raises(UserError, match="links are not followed"):
        join("127.0.0.1:1", SiteConfig(client=0, out=tmp_path / "site"))
    assert contents(home) == {}
