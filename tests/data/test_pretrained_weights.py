import hashlib
from dataclasses import replace

import pytest

from rofl.data import pretrained_weights
from rofl.data.pretrained_weights import IMAGENET, weights_file
from rofl.errors import UserError
from tests.data.conftest import CONTENT


@pytest.fixture
def server(address, monkeypatch):
    published_at(f"{address}/{IMAGENET}", monkeypatch)


def published_at(url, monkeypatch, checksum=pretrained_weights._REMOTE.checksum):
    monkeypatch.setattr(pretrained_weights, "_REMOTE", replace(pretrained_weights._REMOTE, url=url, checksum=checksum))


def test_the_checksum_is_that_of_the_published_name():
    kind, _, digits = pretrained_weights._REMOTE.checksum.partition(":")
    assert kind == "sha256"
    assert digits.startswith(IMAGENET.removesuffix(".pth").partition("-")[2])
    assert len(digits) == 64
    assert pretrained_weights._REMOTE.url == "https://download.pytorch.org/models/resnet50-0676ba61.pth"


def test_a_path_is_itself(tmp_path, monkeypatch):
    (tmp_path / "mine.safetensors").touch()
    assert weights_file(str(tmp_path / "mine.safetensors")) == tmp_path / "mine.safetensors"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert weights_file("~/mine.safetensors") == tmp_path / "mine.safetensors"


def test_a_path_without_a_file_is_told(tmp_path):
    with pytest.raises(UserError, match="There is no weight file") as caught:
        weights_file(str(tmp_path / "absent.pth"))
    assert "imagenet" in caught.value.hint


def test_weights_that_are_there_need_no_network(tmp_path, monkeypatch):
    for folder in (tmp_path / "chosen", tmp_path / "environment"):
        (folder / "weights").mkdir(parents=True)
        (folder / "weights" / IMAGENET).touch()
    published_at("http://127.0.0.1:9/", monkeypatch)
    monkeypatch.setenv("ROFL_DATA", str(tmp_path / "environment"))
    assert weights_file("imagenet") == tmp_path / "environment/weights" / IMAGENET
    assert weights_file("imagenet", tmp_path / "chosen") == tmp_path / "chosen/weights" / IMAGENET


def test_without_a_network_one_sentence_says_what_to_put_where(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    published_at("http://127.0.0.1:9/weights.pth", monkeypatch)  # the discard port: nobody listens
    with pytest.raises(UserError) as caught:
        weights_file("imagenet", tmp_path)
    assert f"{IMAGENET} is not in {tmp_path / 'weights'} and could not be downloaded" in caught.value.sentence
    assert "\n" not in caught.value.sentence
    assert "http://127.0.0.1:9/weights.pth" in caught.value.hint


def test_absent_weights_are_downloaded(tmp_path, address, monkeypatch):
    published_at(f"{address}/{IMAGENET}", monkeypatch, f"sha256:{hashlib.sha256(CONTENT).hexdigest()}")
    path = weights_file("imagenet", tmp_path)
    assert path == tmp_path / "weights" / IMAGENET
    assert path.read_bytes() == CONTENT


def test_a_download_with_another_checksum_is_not_kept(tmp_path, server):
    with pytest.raises(UserError, match="could not be downloaded"):
        weights_file("imagenet", tmp_path)
    assert not (tmp_path / "weights" / IMAGENET).exists()
