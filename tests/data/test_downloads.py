import hashlib
from pathlib import Path

import pooch
import pytest

from rofl.data.downloads import RemoteFile, data_dir, fetch
from rofl.errors import UserError
from tests.data.conftest import CONTENT

MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def straight_to_this_machine(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def nowhere(name: str = "images.gz") -> RemoteFile:
    return RemoteFile(name, f"http://127.0.0.1:9/{name}", f"md5:{MD5}")  # the discard port: nobody listens


def test_a_file_that_is_there_needs_no_network(tmp_path):
    (tmp_path / "images.gz").write_bytes(b"mine")
    assert fetch(tmp_path, nowhere()) == tmp_path / "images.gz"
    assert (tmp_path / "images.gz").read_bytes() == b"mine"


def test_without_a_network_the_error_names_file_folder_and_address(tmp_path):
    folder = tmp_path / "mnist"
    with pytest.raises(UserError) as caught:
        fetch(folder, nowhere())
    assert f"images.gz is not in {folder} and could not be downloaded" in caught.value.sentence
    assert "\n" not in caught.value.sentence
    assert "http://127.0.0.1:9/images.gz" in caught.value.hint
    assert "ROFL_DATA" in caught.value.hint


def test_an_absent_file_is_downloaded_into_the_folder(tmp_path, address):
    path = fetch(tmp_path / "mnist", RemoteFile("images.gz", f"{address}/images.gz", f"md5:{MD5}"))
    assert path == tmp_path / "mnist" / "images.gz"
    assert path.read_bytes() == CONTENT


def test_a_download_with_the_wrong_checksum_is_not_kept(tmp_path, address):
    with pytest.raises(UserError, match=r"images\.gz is not in .* could not be downloaded"):
        fetch(tmp_path, RemoteFile("images.gz", f"{address}/images.gz", "md5:" + "0" * 32))
    assert list(tmp_path.iterdir()) == []


def test_the_chosen_folder_comes_first(monkeypatch):
    monkeypatch.setenv("ROFL_DATA", "/from/environment")
    assert data_dir(Path("/chosen")) == Path("/chosen")


def test_the_environment_variable_is_second(monkeypatch):
    monkeypatch.setenv("ROFL_DATA", "/from/environment")
    assert data_dir(None) == Path("/from/environment")


@pytest.mark.parametrize("value", [None, ""])
def test_the_users_cache_is_last(monkeypatch, value):
    if value is None:
        monkeypatch.delenv("ROFL_DATA", raising=False)
    else:
        monkeypatch.setenv("ROFL_DATA", value)
    assert data_dir(None) == Path(pooch.os_cache("rofl"))
