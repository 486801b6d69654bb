import hashlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from rofl.data import weights
from rofl.data.weights import IMAGENET, weights_file
from rofl.errors import UserError

CONTENT = b"some weights"


@pytest.fixture
def server(monkeypatch):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *args):
            pass

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(weights, "_URL", f"http://127.0.0.1:{server.server_port}/{IMAGENET}")
        yield
        server.shutdown()
        thread.join()


def test_the_checksum_is_that_of_the_published_name():
    assert weights._SHA256.startswith(IMAGENET.removesuffix(".pth").partition("-")[2])
    assert len(weights._SHA256) == 64
    assert weights._URL == "https://download.pytorch.org/models/resnet50-0676ba61.pth"


def test_a_path_is_itself(tmp_path, monkeypatch):
    (tmp_path / "mine.safetensors").touch()
    assert weights_file(str(tmp_path / "mine.safetensors")) == tmp_path / "mine.safetensors"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert weights_file("~/mine.safetensors") == tmp_path / "mine.safetensors"


def test_a_path_without_a_file_is_told(tmp_path):
    with pytest.raises(UserError, match="There is no file of weights") as caught:
        weights_file(str(tmp_path / "absent.pth"))
    assert "imagenet" in caught.value.hint


def test_weights_that_are_there_need_no_network(tmp_path, monkeypatch):
    for folder in (tmp_path / "chosen", tmp_path / "environment"):
        (folder / "weights").mkdir(parents=True)
        (folder / "weights" / IMAGENET).touch()
    monkeypatch.setattr(weights, "_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("ROFL_DATA", str(tmp_path / "environment"))
    assert weights_file("imagenet") == tmp_path / "environment/weights" / IMAGENET
    assert weights_file("imagenet", tmp_path / "chosen") == tmp_path / "chosen/weights" / IMAGENET


def test_without_a_network_one_sentence_says_what_to_put_where(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(weights, "_URL", "http://127.0.0.1:9/weights.pth")  # the discard port: nobody listens
    with pytest.raises(UserError) as caught:
        weights_file("imagenet", tmp_path)
    assert f"{IMAGENET} is not in {tmp_path / 'weights'} and could not be downloaded" in caught.value.sentence
    assert "\n" not in caught.value.sentence
    assert "http://127.0.0.1:9/weights.pth" in caught.value.hint


def test_absent_weights_are_downloaded(tmp_path, server, monkeypatch):
    monkeypatch.setattr(weights, "_SHA256", hashlib.sha256(CONTENT).hexdigest())
    path = weights_file("imagenet", tmp_path)
    assert path == tmp_path / "weights" / IMAGENET
    assert path.read_bytes() == CONTENT


def test_a_download_with_another_checksum_is_not_kept(tmp_path, server):
    with pytest.raises(UserError, match="could not be downloaded"):
        weights_file("imagenet", tmp_path)
    assert not (tmp_path / "weights" / IMAGENET).exists()
