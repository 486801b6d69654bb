"""Dockerfile, compose files and Kubernetes manifest: linted, and their steps run without an engine for containers."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

import rofl
from rofl.federation.flower_internal.processes import free_port
from tests.data.user import places as images
from tests.deploy.containers import ROOT, Compose, Container, Image, locate, read_dockerfile
from tests.federation.people import left_behind, until

SITES = ("north", "east", "south")
COMPOSE, OWN_DATA = ROOT / "compose.yaml", ROOT / "deploy" / "compose.data.yaml"
MANIFEST = ROOT / "deploy" / "kubernetes" / "coordinator.yaml"


def test_the_image_is_small_and_not_of_root() -> None:
    steps = read_dockerfile((ROOT / "Dockerfile").read_text())
    words = [word for word, _ in steps]
    assert [rest.split()[0] for word, rest in steps if word == "FROM"] == ["python:3.11-slim"] * 2
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert all("--no-cache-dir" in rest for word, rest in steps if word == "RUN" and "pip install" in rest)
    assert ("USER", "10001:10001") in steps
    assert "HEALTHCHECK" in words


def test_files_name_this_version() -> None:
    files = (COMPOSE, MANIFEST)
    assert [path.name for path in files if f"fed-noisy-labels:{rofl.__version__}\n" not in path.read_text()] == []


def test_no_service_can_do_more_than_it_needs() -> None:
    for name, service in yaml.safe_load(COMPOSE.read_text())["services"].items():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
        if name != "keys":
            key = service["volumes"][0]
            assert (key["read_only"], key["volume"]["subpath"]) == (
                True,
                "server" if name == "coordinator" else f"sites/{name}",
            )
    for each in yaml.safe_load_all(MANIFEST.read_text()):
        if each["kind"] == "Job":
            pod = each["spec"]["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"]
            assert all(one["securityContext"]["readOnlyRootFilesystem"] for one in pod["containers"])


@pytest.mark.slow
def test_linters_find_nothing() -> None:
    for package in ("check_jsonschema", "kubernetes_validate"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[release]'")
    tools = Path(sys.executable).parent
    for words in (
        ["hadolint", "Dockerfile"],
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE), str(OWN_DATA)],
        ["kubernetes-validate", "--strict", str(MANIFEST)],
    ):
        done = subprocess.run([tools / words[0], *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


@contextmanager
def started(*containers: Container) -> Iterator[None]:
    """Containers run within the block; at its end all are gone."""
    try:
        for each in containers:
            each.start()
        yield
    finally:
        for each in containers:
            if each.process.poll() is None:
                each.process.kill()


def write_scans(place: Path) -> dict[str, str]:
    """Images of each site, and the variables that name their folders."""
    folders = {name: images.write_folder(place / "scans" / name, with_clients=False, each=12) for name in SITES}
    return {f"{name.upper()}_DATA": str(folder) for name, folder in folders.items()}


def own(folder: Path, image: Image) -> None:
    """Give a folder to the image's user."""
    for path in (folder, *folder.rglob("*")):
        if os.geteuid() == 0:
            os.chown(path, image.user, image.user)


@pytest.mark.slow
def test_the_image_starts_with_help_and_has_no_pip(image: Image, place: Path) -> None:
    assert all(step.startswith("groupadd --gid 10001 rofl && useradd --uid 10001") for step in image.skipped)
    assert len(image.skipped) == 1
    (place / "data").mkdir()
    own(place / "data", image)
    container = Container(image, [*image.entrypoint, *image.command], {"/data": place / "data"}, place / "help.log")
    container.start()
    assert container.code() == 0, container.said()
    assert "Usage: rofl" in container.said()
    assert not (image.places["/opt/rofl"] / "lib" / "python3.11" / "site-packages" / "pip").exists()
    size = sum(path.stat().st_size for path in image.places["/opt/rofl"].rglob("*") if path.is_file())
    assert size < 1.2e9, f"{size / 1e6:.0f} MB"


@pytest.mark.slow
@pytest.mark.parametrize("files", [[COMPOSE], [COMPOSE, OWN_DATA]], ids=["digits", "own data"])
def test_compose_up_stop_and_up_again(image: Image, place: Path, files: list[Path]) -> None:
    compose = Compose(files, image, place, {"ROFL_ROUNDS": "6", **write_scans(place)}, free_port())
    keys = compose.container("keys")
    assert compose.services["coordinator"]["depends_on"] == {"keys": {"condition": "service_completed_successfully"}}
    for _ in range(2):  # the second `up` finds the keys of the first
        keys.start()
        assert keys.code() == 0, keys.said()
    coordinator, *sites = (compose.container(name) for name in ("coordinator", *SITES))
    with started(coordinator):
        assert compose.services["north"]["depends_on"] == {"coordinator": {"condition": "service_healthy"}}
        until(lambda: coordinator.healthy() or coordinator.process.poll() is not None, coordinator.said, 600)
        with started(*sites):
            rounds = place / "coordinator" / "run" / "metrics.jsonl"
            until(lambda: rounds.is_file() or coordinator.process.poll() is not None, coordinator.said, 900)
            assert coordinator.stop() == 130, coordinator.said()
            assert not coordinator.healthy()
            assert [site.healthy() for site in sites] == [True] * 3  # they wait for it
            coordinator.start()  # `up` again, or the restart after a failure: the same command
            assert coordinator.code() == 0, coordinator.said()
            assert [site.code() for site in sites] == [0] * 3, [site.said() for site in sites]
    assert "masked: this machine sees no single one" in coordinator.said()
    for name in ("coordinator", *SITES):
        assert (place / name / "run" / "report.html").is_file()
    assert len(rounds.read_text().splitlines()) == 6
    until(lambda: not left_behind(place), lambda: f"the end of {left_behind(place)}", 20)


def secret_files(keys: Path, folder: Path) -> None:
    """The files of the secret, by the command of docs/deploy.md where kubectl is at hand."""
    names = {name: keys / name for name in ("ca.crt", "server.pem", "server.key", "sites.toml")}
    names |= {f"certificate.{path.name}": path for path in sorted((keys / "certificates").iterdir())}
    folder.mkdir()
    if shutil.which("kubectl") is None:
        for name, path in names.items():
            shutil.copy(path, folder / name)
        return
    words = ["kubectl", "create", "secret", "generic", "rofl-server-keys", "--dry-run=client", "-o", "json"]
    done = subprocess.run(
        [*words, *(f"--from-file={name}={path}" for name, path in names.items())], capture_output=True, check=True
    )
    for name, value in json.loads(done.stdout)["data"].items():
        (folder / name).write_bytes(base64.b64decode(value))


@pytest.mark.slow
def test_the_coordinator_of_the_cluster_runs_with_keys_from_its_secret(image: Image, place: Path) -> None:
    compose = Compose([COMPOSE], image, place, {}, free_port())
    keys = compose.container("keys")
    keys.start()
    assert keys.code() == 0, keys.said()
    secret_files(place / "keys" / "server", place / "secret")
    for name in ("pod-keys", "pod-data"):
        (place / name).mkdir()
        own(place / name, image)
    own(place / "secret", image)
    job = next(each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    places = {"/keys": place / "pod-keys", "/data": place / "pod-data", "/secret": place / "secret"}

    def container(one: dict[str, list[str]], name: str) -> Container:
        words = [locate(word, places).replace("9443", str(compose.port)) for word in (*one["command"], *one["args"])]
        words = [word.replace("rounds=30", "rounds=2") for word in words]
        return Container(image, words, places, place / f"{name}.log")

    setup, coordinator = container(pod["initContainers"][0], "setup"), container(pod["containers"][0], "pod")
    setup.start()
    assert setup.code() == 0, setup.said()
    probe = tuple(pod["containers"][0]["startupProbe"]["exec"]["command"])
    assert probe == image.health
    scans = write_scans(place)
    sites = [Compose([COMPOSE, OWN_DATA], image, place, scans, compose.port).container(name) for name in SITES]
    with started(coordinator, *sites):
        until(lambda: coordinator.healthy() or coordinator.process.poll() is not None, coordinator.said, 600)
        assert coordinator.code() == 0, coordinator.said()
        assert [site.code() for site in sites] == [0] * 3, [site.said() for site in sites]
    assert (place / "pod-data" / "run" / "summary.json").is_file()
