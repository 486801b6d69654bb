"""The page docs/federation.md, as it is written: its commands as real processes, each in the folder of its machine."""

import csv
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from rofl.federation.flower_internal.processes import free_port
from tests.federation.people import People, Person

PAGE = (Path(__file__).parents[2] / "docs" / "federation.md").read_text()
MACHINES = ("coordinator", "north", "south")
ROUNDS = 3
# class -> how many images; what is scanned later at south shows a class that only north had
SCANS = {
    "north/scans": {"0": 22, "1": 22, "2": 22},
    "south/scans": {"0": 30, "1": 30},
    "south/later": {"0": 6, "1": 6, "2": 6},
}


def commands() -> Iterator[tuple[str, list[str]]]:
    """The machine and the arguments of each command, in the order of the page."""
    for machine, block in re.findall(r"```bash\n# at ([a-z ]+)\n(.*?)```", PAGE, flags=re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line)
            assert words[0] == "rofl", line
            yield machine.removeprefix("the "), words[1:]


def write_scans(place: Path) -> dict[str, Image.Image]:
    """Folders of images with one label in ten wrong; all images by name, each of which is used once."""
    digits, rng = load_digits(), np.random.default_rng(0)
    rows = {kind: iter(np.flatnonzero(digits.target == int(kind)).tolist()) for kind in "012"}
    made = {}
    for folder, kinds in SCANS.items():
        for kind, row in ((kind, next(rows[kind])) for kind, count in kinds.items() for _ in range(count)):
            wrong = rng.random() < 0.1
            label = rng.choice([other for other in kinds if other != kind]) if wrong else kind
            name = f"patient-{row:04}.png"
            made[name] = Image.fromarray((digits.images[row] * 15.9).astype(np.uint8))
            (place / folder / label).mkdir(parents=True, exist_ok=True)
            made[name].save(place / folder / label / name)
    return made


class Hospitals:
    """Three machines, as folders, and the commands that keep running."""

    def __init__(self, place: Path, people: dict[str, People], monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.people, self.port = place, people, free_port()
        self.running: dict[str, Person] = {}
        self._monkeypatch = monkeypatch

    def follow(self, machine: str, words: list[str]) -> None:
        """What a reader does with a command."""
        if "--resume" in words:
            self.people[machine].wait_for_round(1)
            self.running[machine].kill()
        if words[0] == "audit":
            self.come_to_the_end()
        stays = words[0] in ("serve", "join") and not {"--init", "--dry-run", "--init-policy"} & set(words)
        words = [word.replace("9443", str(self.port)).replace("rounds=30", f"rounds={ROUNDS}") for word in words]
        self._monkeypatch.setenv("ROFL_CACHE", str(self.place / machine / "cache"))
        person = self.people[machine].rofl(words[0], *words)
        if stays:
            self.running[machine] = person
            if words[0] == "serve":
                person.wait_for("Waiting for 2 sites")
            return
        assert person.code() == 0, f"{words}: {person.said()}"
        if "--init" in words:
            self.hand_over()

    def hand_over(self) -> None:
        """Each hospital gets its folder, and nothing else."""
        for name in ("north", "south"):
            source = self.place / "coordinator" / "keys" / "sites" / name
            shutil.copytree(source, self.place / name / "keys", dirs_exist_ok=True)

    def come_to_the_end(self) -> None:
        for person in self.running.values():
            assert person.code() == 0, person.said()


@pytest.mark.slow
def test_the_page_is_true_from_the_first_to_the_last_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = write_scans(tmp_path)
    (tmp_path / "coordinator").mkdir()
    with ExitStack() as stack:  # at whose end nobody is left in any of the folders
        people = {machine: stack.enter_context(People(tmp_path / machine)) for machine in MACHINES}
        hospitals = Hospitals(tmp_path, people, monkeypatch)
        for machine, words in commands():
            hospitals.follow(machine, words)
    check_what_was_said(hospitals)
    check_the_run(people)
    check_the_sites(tmp_path)
    check_that_nothing_left(tmp_path / "coordinator", scans)
    assert (tmp_path / "coordinator" / "keys" / "sites" / "east" / "site.key").is_file()


def check_what_was_said(hospitals: Hospitals) -> None:
    """The page's excerpts are what the programs say, but for numbers and widths."""
    excerpts = re.findall(r"```text\n# seen at ([a-z ]+)\n(.*?)```", PAGE, flags=re.DOTALL)
    assert [machine for machine, _ in excerpts] == ["north", "the coordinator", "north"]
    for machine, excerpt in excerpts:
        said = hospitals.running[machine.removeprefix("the ")].said()
        for line in excerpt.splitlines():
            loose = re.sub(r"(\\ )+", r"\\s+", re.escape(line.strip()))
            assert re.search(re.sub(r"\d+(\\\.\d+)?", r"[\\d.]+", loose), said), f"{line}: {said}"


def check_the_run(people: dict[str, People]) -> None:
    summary = people["coordinator"].summary()
    assert summary["classes"] == ["0", "1", "2"]
    assert summary["final_accuracy"] > 50
    assert set(summary["estimated"]["clients"]) == {"north", "south"}
    assert summary["note"] == ""
    assert [entry["round"] for entry in people["coordinator"].history()] == list(range(1, ROUNDS + 1))
    assert all(entry["accuracy"] is not None for entry in people["coordinator"].history())
    assert {people[site].summary()["digest"] for site in ("north", "south")} == {summary["selected_digest"]}


def check_the_sites(place: Path) -> None:
    """Lists and pages about a site's own samples, and nobody else's; and an audit of what came later."""
    for site in ("north", "south"):
        run = place / site / "run"
        suspects = (run / "suspects" / f"{site}.csv").read_text()
        names = {path.name for path in (place / site / "scans").rglob("*.png")}
        assert names & set(re.findall(r"patient-\d+\.png", suspects))
        assert set(re.findall(r"patient-\d+\.png", suspects)) <= names
        page = (run / "report.html").read_text()
        flagged = [row for row in csv.DictReader(suspects.splitlines()) if row["flagged"] == "yes"]
        assert ("suspects-data" in page) == bool(flagged)  # cards with pictures
        assert set(re.findall(r"patient-\d+\.png", page)) <= names
    later = (place / "south" / "later-audit" / "suspects").glob("*.csv")
    assert sum(text.count("patient-") for text in (path.read_text() for path in later)) == 18


def check_that_nothing_left(coordinator: Path, scans: dict[str, Image.Image]) -> None:
    """No image in any form, no name of a sample."""
    files = {path: path.read_bytes() for path in coordinator.rglob("*") if path.is_file()}
    assert coordinator / "run" / "report.html" in files
    assert not (coordinator / "cache").exists()
    for path, content in files.items():
        assert b"patient-" not in content, path
        assert b"\x89PNG" not in content, path
        assert b"suspects-data" not in content, path
        assert not any(image.tobytes() in content for image in scans.values()), path
