"""What an engine for containers does with a Dockerfile and a compose file, as far as it can be done without one.

Steps and services run as they are written, in folders of their own: a path of the container, such as /data, stands for
a folder of this machine, and a service's name for localhost. Run as root, services have the image's user, who can write
to the volumes and to nothing else.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOREIGN = ("groupadd", "useradd")  # steps that would change the users of this machine
Instruction = tuple[str, str]


def read_dockerfile(text: str) -> list[Instruction]:
    """The instructions with what follows them, without comments and broken lines."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    return [(word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in whole.splitlines())]


def locate(text: str, places: Mapping[str, Path]) -> str:
    """A text with this machine's folders for the container's, the longest path first."""
    names = "|".join(re.escape(name) for name in sorted(places, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({names})(?![\w-])", lambda found: str(places[found[1]]), text)


@dataclass(frozen=True)
class Image:
    """A built image: its environment, and how a container of it starts and is checked.

    Attributes:
        places: the container's folders -> those of this machine.
        environment: variables.
        user: the number of the user and of the group.
        skipped: steps that were not run.
    """

    places: dict[str, Path]
    environment: dict[str, str] = field(default_factory=dict)
    user: int = 0
    folder: str = "/"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    health: tuple[str, ...] = ()
    stop: str = "SIGTERM"
    skipped: tuple[str, ...] = ()


def build(place: Path, allowed: Sequence[str]) -> Image:
    """Run the steps of the Dockerfile; COPY takes only what .dockerignore leaves."""
    places = {name: place / name[1:] for name in ("/opt/rofl", "/build", "/data", "/keys")}
    python = place / "bin"
    python.mkdir()
    (python / "python").symlink_to(base_python())
    image = Image(places, {"PATH": f"{python}:/usr/bin:/bin"})
    for word, rest in read_dockerfile((ROOT / "Dockerfile").read_text()):
        image = _step(image, word, rest, allowed)
    return image


def base_python() -> str:
    """A Python 3.11 that every user can run; this one where the system has none."""
    found = "/usr/bin/python3.11"
    able = [found, "-c", "import ensurepip, venv"]
    usable = os.path.exists(found) and subprocess.run(able, capture_output=True, check=False).returncode == 0
    return found if usable else os.path.realpath(sys.executable)


def _step(image: Image, word: str, rest: str, allowed: Sequence[str]) -> Image:
    if word == "FROM":
        assert rest.startswith("python:3.11-slim"), rest
        return replace(image, environment={"PATH": image.environment["PATH"]}, folder="/")
    if word in ("ARG", "ENV"):
        found = {name: value.strip('"') for name, value in re.findall(r'(\w+)=("[^"]*"|\S+)', rest)}
        if "PATH" in found:
            found["PATH"] = locate(found["PATH"], image.places).replace("$PATH", image.environment["PATH"])
        return replace(image, environment={**image.environment, **found})
    if word == "WORKDIR":
        Path(locate(rest, image.places)).mkdir(parents=True, exist_ok=True)
        return replace(image, folder=rest)
    if word == "COPY":
        _copy(image, rest.split(), allowed)
        return image
    if word == "RUN":
        return _run(image, rest)
    if word == "USER":
        user, _, group = rest.partition(":")
        assert user == group
        return replace(image, user=int(user))
    if word == "HEALTHCHECK":
        return replace(image, health=tuple(json.loads(rest[rest.index("[") :])))
    if word in ("ENTRYPOINT", "CMD"):
        return replace(image, **{{"ENTRYPOINT": "entrypoint", "CMD": "command"}[word]: tuple(json.loads(rest))})
    if word == "STOPSIGNAL":
        return replace(image, stop=rest)
    assert word == "EXPOSE", word
    return image


def _copy(image: Image, words: list[str], allowed: Sequence[str]) -> None:
    """Copy from the repository; a copy from another stage is of a folder that both have here."""
    if words[0].startswith("--from="):
        assert words[1] == words[2]
        return
    *sources, target = words
    folder = Path(locate(image.folder, image.places))
    for source in sources:
        assert source in allowed, f".dockerignore leaves {source} out"
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, folder / target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, folder / target)


def _run(image: Image, step: str) -> Image:
    if step.startswith(FOREIGN):
        return replace(image, skipped=(*image.skipped, step))
    if os.geteuid() != 0:
        step = step.replace("--owner 10001 --group 10001", "")
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    done = subprocess.run(
        ["/bin/sh", "-c", locate(step, image.places)],
        cwd=locate(image.folder, image.places),
        env={**image.environment, **pip},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{step}: {done.stdout}{done.stderr}"
    return image


@dataclass
class Container:
    """A service that runs: its process, and what it says in a file."""

    image: Image
    words: list[str]
    places: dict[str, Path]
    log: Path

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = self._open(self.words, stdout=log, stderr=log)

    def healthy(self) -> bool:
        """Run the image's health check in the container."""
        return self._open([locate(word, self.places) for word in self.image.health]).wait(60) == 0

    def stop(self) -> int:
        """What `docker stop` does."""
        self.process.send_signal(signal.Signals[self.image.stop])
        return self.process.wait(60)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def code(self, seconds: float = 600) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.said()[-3000:]) from None

    def _open(self, words: list[str], **where: Any) -> "subprocess.Popen[bytes]":
        home = self.places["/data"]
        variables = {name: locate(value, self.places) for name, value in self.image.environment.items()}
        alone = {"HOME": str(home), "OMP_NUM_THREADS": "1"}
        user = {"user": self.image.user, "group": self.image.user, "extra_groups": []} if os.geteuid() == 0 else {}
        return subprocess.Popen(words, cwd=home, env={**variables, **alone}, stdin=subprocess.DEVNULL, **user, **where)


class Compose:
    """The services of compose files, later ones over earlier ones, with volumes as folders below a place.

    Args:
        files: the compose files.
        image: that all services use.
        place: where volumes and logs are.
        variables: what `${NAME:-default}` and `${NAME:?message}` mean.
        port: what 9443 is on this machine.
    """

    def __init__(
        self, files: Sequence[Path], image: Image, place: Path, variables: Mapping[str, str], port: int
    ) -> None:
        self.image, self.place, self.port = image, place, port
        self.services: dict[str, dict[str, Any]] = {}
        for file in files:
            content = yaml.safe_load(_interpolate(file.read_text(), variables))
            for name, service in content["services"].items():
                known = self.services.setdefault(name, {})
                known.update({**service, "volumes": [*known.get("volumes", []), *service.get("volumes", [])]})

    def container(self, name: str) -> Container:
        """The container of a service, not started yet."""
        service = self.services[name]
        entrypoint = service.get("entrypoint", self.image.entrypoint)
        words = [*entrypoint, *service.get("command", self.image.command)]
        mounted = dict(self._mount(each) for each in service["volumes"])
        places = {"/data": self.image.places["/data"], **mounted}
        here = [self._here(locate(word, places)) for word in words]
        return Container(self.image, here, places, self.place / f"{name}.log")

    def _here(self, word: str) -> str:
        """A service's name is localhost, and its port another one."""
        return re.sub(r"^coordinator\b", "localhost", word).replace("9443", str(self.port))

    def _mount(self, volume: Any) -> tuple[str, Path]:
        """The container's folder and this machine's, which is there with the user's rights."""
        if isinstance(volume, str):
            source, target = volume.split(":")[:2]
        else:
            source, target = f"{volume['source']}/{volume['volume']['subpath']}", volume["target"]
        folder = Path(source) if source.startswith("/") else self.place / source
        if not folder.exists():
            folder.mkdir(parents=True)
            if os.geteuid() == 0:
                os.chown(folder, self.image.user, self.image.user)
        return target, folder


def _interpolate(text: str, variables: Mapping[str, str]) -> str:
    """Put variables in, as compose does; one that has no default must be given."""
    return re.sub(
        r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)\}",
        lambda found: variables[found[1]] if found[2] is None else variables.get(found[1], found[2]),
        text,
    )
