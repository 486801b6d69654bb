"""Tensors that several processes see."""

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.simulation.shared_memory import SharedTensors, layout

SHOWN = {
    "odd": torch.arange(7, dtype=torch.uint8),
    "matrix": torch.arange(6.0).view(2, 3),
    "none": torch.zeros(0, 4),
    "scalar": torch.tensor(5),
}

# Another process, which knows the layout; it reads, then adds 1, each time a line comes in.
READER = """
import sys, torch
from rofl.simulation.shared_memory import attach, layout
shapes = {"odd": (torch.uint8, (7,)), "matrix": (torch.float32, (2, 3)), "none": (torch.float32, (0, 4)),
          "scalar": (torch.int64, ())}
places = layout({name: torch.zeros(shape, dtype=kind) for name, (kind, shape) in shapes.items()})
seen = attach(int(sys.argv[1]), places)
for line in sys.stdin:
    print({name: value.tolist() for name, value in seen.items()}, flush=True)
    for value in seen.values():
        value.add_(1)
    print("done", flush=True)
"""


def test_another_process_sees_changes_in_place_and_its_own_are_seen_here() -> None:
    shared = SharedTensors(SHOWN)
    with subprocess.Popen(
        [sys.executable, "-c", READER, str(shared.descriptor)],
        pass_fds=[shared.descriptor],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None

        def ask() -> str:
            print("look", file=other.stdin, flush=True)
            seen = other.stdout.readline().strip()
            assert other.stdout.readline().strip() == "done"
            return seen

        assert ask() == str({name: value.tolist() for name, value in SHOWN.items()})
        assert shared.tensors["matrix"].tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
        changed = {name: value * 10 for name, value in SHOWN.items()}
        shared.write(changed)
        assert ask() == str({name: value.tolist() for name, value in changed.items()})
        other.stdin.close()
    shared.close()


def test_what_is_shared_is_a_copy() -> None:
    own = torch.zeros(3)
    shared = SharedTensors({"w": own})
    shared.tensors["w"].fill_(1)
    assert own.tolist() == [0.0, 0.0, 0.0]
    shared.close()


def test_nothing_is_left_in_the_file_system() -> None:
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
    if folder is None:
        pytest.skip("no /dev/shm on this system")
    before = set(os.listdir(folder))
    shared = SharedTensors(SHOWN)
    assert set(os.listdir(folder)) <= before
    shared.close()


def test_the_tensors_outlive_the_descriptor() -> None:
    shared = SharedTensors({"w": torch.arange(3.0)})
    shared.close()
    assert shared.tensors["w"].tolist() == [0.0, 1.0, 2.0]


@given(st.lists(st.tuples(st.sampled_from([torch.uint8, torch.float32, torch.int64]), st.integers(0, 70)), max_size=6))
def test_places_are_aligned_and_do_not_overlap(kinds: list[tuple[torch.dtype, int]]) -> None:
    places = layout({str(place): torch.zeros(count, dtype=kind) for place, (kind, count) in enumerate(kinds)})
    end = 0
    for kind, shape, offset in places.places.values():
        assert offset >= end
        assert offset % 64 == 0
        end = offset + shape[0] * kind.itemsize
    assert end <= places.size


@given(st.lists(st.tuples(st.sampled_from([torch.uint8, torch.float32, torch.int64]), st.integers(0, 70)), max_size=6))
def test_any_tensors_can_be_shared(kinds: list[tuple[torch.dtype, int]]) -> None:
    given_ = {str(place): torch.arange(count).to(kind) for place, (kind, count) in enumerate(kinds)}
    shared = SharedTensors(given_)
    assert all(torch.equal(shared.tensors[name], value) for name, value in given_.items())
    shared.close()
