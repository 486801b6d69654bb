"""A disk that is full or read-only: one sentence, and nothing that was finished is lost."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import rofl
from rofl.errors import UserError
from rofl.simulation.shared_memory import SharedTensors
from tests.flow.called import rofl as command
from tests.flow.tiny import outcome, tiny, undisturbed


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process may grow beyond a size, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True)


@pytest.mark.parametrize(("size", "file"), [(600, "metrics.jsonl"), (2500, "checkpoint.safetensors")])
def test_a_run_whose_files_cannot_grow_ends_in_one_sentence_and_goes_on(size: int, file: str, tmp_path: Path) -> None:
    experiment = tiny()
    with ExitStack() as stack:

        def fill(_: object, entry: Any) -> None:
            if entry.round == 1:
                stack.enter_context(files_up_to(size))

        with pytest.raises(UserError, match=rf"{file} cannot be written \(File too large\)"):
            rofl.run(experiment, tmp_path / "run", workers=0, listener=fill)
    assert not list((tmp_path / "run").glob(".*.new"))  # it would take the room that is needed
    rofl.resume(tmp_path / "run", workers=0)
    assert outcome(tmp_path / "run") == undisturbed(experiment)


def test_a_full_disk_and_a_read_only_one(disk: Path) -> None:
    experiment, run = tiny(), disk / "run"
    filler = disk / "filler"

    def fill(_: object, entry: Any) -> None:
        if entry.round == 2:
            with suppress(OSError), open(filler, "wb", buffering=0) as file:
                while file.write(bytes(1024)):
                    pass

    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\)"):
        rofl.run(experiment, run, workers=0, listener=fill)
    filler.unlink()
    remount(disk, "ro")
    new = ("run", "digits", "--set", "rounds=1", "--out", "new")
    for arguments, why in ((("resume", "run"), " (Read-only file system)"), (new, f": {disk} is read-only.")):
        done = command(*arguments, "--workers", "0", cwd=disk)
        assert done.returncode == 2
        said = " ".join(done.stderr.split())
        assert f"cannot be written{why}" in said
        assert "Traceback" not in said
    remount(disk, "rw")
    rofl.resume(run, workers=0)
    assert outcome(run) == undisturbed(experiment)
    remount(disk, "ro")
    assert rofl.resume(run).summary.rounds == experiment.rounds  # a finished run can be read there
    told = command("audit", "run", "--workers", "0", cwd=disk)
    assert told.returncode == 2
    assert "cannot be written (Read-only file system)" in " ".join(told.stderr.split())


def test_output_that_cannot_be_written_ends_in_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rofl", "--version"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (2, "error: No space left on device.\n")


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    rofl.run(tiny(rounds=1), tmp_path / "run", workers=0)
    with files_up_to(1000):
        told = command("report", "run", "--out", "page.html", cwd=tmp_path)
    assert told.returncode == 2
    assert "page.html cannot be written (File too large)" in " ".join(told.stderr.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_no_room_in_shared_memory_is_told_before_a_signal_kills_us() -> None:
    with files_up_to(1000), pytest.raises(UserError, match="has no room for the 4032 bytes that workers share"):
        SharedTensors({"images": torch.zeros(1000)})
