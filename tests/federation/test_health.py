"""`rofl federation check`: what a health check of a container asks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from rofl.errors import UserError
from rofl.federation.credentials import ServerCredentials
from rofl.federation.event_log import LOG_FILE, EventLog
from rofl.federation.flower_internal.processes import free_port
from rofl.federation.health import check_health
from rofl.federation.issue_credentials import make_credentials
from rofl.federation.server_config import ServerConfig
from tests.federation.threaded_gateway import ThreadedGateway


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    make_credentials(folder, ["north"], ["fl.example.org"])  # no name of this machine
    return folder / "server"


def test_a_coordinator_is_well_while_its_gateway_answers(keys: Path, tmp_path: Path) -> None:
    made = ServerCredentials.read(keys)
    with ThreadedGateway("127.0.0.1:0", "http://127.0.0.1:9", (made.certificate, made.key), None) as gateway:
        ServerConfig(f"0.0.0.0:{gateway.port}", 1, str(keys)).write(tmp_path)
        (tmp_path / "metrics.jsonl").write_text("{}\n{}\n")
        assert check_health(tmp_path) == "The coordinator answers; 2 rounds are done."
    with pytest.raises(UserError, match="does not answer"):
        check_health(tmp_path)


def test_a_stranger_at_the_coordinators_port_is_not_taken_for_it(keys: Path, tmp_path: Path) -> None:
    make_credentials(tmp_path / "others", ["north"], ["fl.example.org"])
    other = ServerCredentials.read(tmp_path / "others" / "server")
    with ThreadedGateway("127.0.0.1:0", "http://127.0.0.1:9", (other.certificate, other.key), None) as gateway:
        ServerConfig(f"127.0.0.1:{gateway.port}", 1, str(keys)).write(tmp_path)
        with pytest.raises(UserError, match="CERTIFICATE_VERIFY_FAILED"):
            check_health(tmp_path)


def test_a_site_is_well_once_it_has_joined(tmp_path: Path) -> None:
    for text in ("", "no JSON\n"):
        (tmp_path / LOG_FILE).write_text(text)
        with pytest.raises(UserError, match="No coordinator and no site is running in"):
            check_health(tmp_path)
    (tmp_path / LOG_FILE).unlink()
    EventLog(tmp_path / LOG_FILE).write("joined", name="north")
    assert "'joined'" in check_health(tmp_path)


@pytest.mark.parametrize("name", ["summary.json", "serve.toml", "metrics.jsonl", LOG_FILE])
def test_links_in_a_run_folder_are_not_followed(keys: Path, tmp_path: Path, name: str) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    made = ServerCredentials.read(keys)
    with ThreadedGateway("127.0.0.1:0", "http://127.0.0.1:9", (made.certificate, made.key), None) as gateway:
        if name in ("serve.toml", "metrics.jsonl"):
            ServerConfig(f"127.0.0.1:{gateway.port}", 1, str(keys)).write(run)
        if name == "serve.toml":
            (run / name).rename(elsewhere)
        elsewhere.touch()
        (run / name).symlink_to(elsewhere)
        with pytest.raises(UserError, match=rf"{name} is a link, and links are not followed"):
            check_health(run)


def test_what_a_folder_from_elsewhere_says_commands_no_terminal_and_reaches_no_odd_address(tmp_path: Path) -> None:
    (tmp_path / LOG_FILE).write_text(json.dumps({"event": "joined", "time": "\x1b[2J"}) + "\n")
    assert "\x1b" not in check_health(tmp_path)
    for address in ("127.0.0.1:70000", f"{'a' * 70}.example:443", "127.0.0.1"):
        ServerConfig(address, 1).write(tmp_path)
        with pytest.raises(UserError, match=r"cannot be used|does not answer"):
            check_health(tmp_path)


def test_the_command_takes_no_torch_and_ends_with_2_where_nobody_is(tmp_path: Path) -> None:
    ServerConfig(f"127.0.0.1:{free_port()}", 1).write(tmp_path)
    tell = "print(sorted({'torch', 'flwr'} & set(sys.modules)))"
    code = f"import sys; from rofl.cli import main\ntry: main()\nfinally: {tell}"
    done = subprocess.run(
        [sys.executable, "-c", code, "federation", "check", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "[]\n"), done.stderr
    assert "does not answer" in done.stderr
