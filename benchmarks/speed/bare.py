"""A bare training loop on random tensors: forward, cross-entropy, backward, step, and nothing else.

`python -m benchmarks.speed.bare SETTINGS` is one process of it: it trains for so many seconds as each line of its
standard input says, and answers how many images it trained on in a second.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from rofl.core.seeds import generator
from rofl.engines.client import NetworkSpec


@dataclass(frozen=True)
class Setting:
    """What the loop trains, and how."""

    model: str
    shape: tuple[int, int, int]
    width: float
    batch: int
    processes: int
    threads: int  # of each
    channels_last: bool

    def __str__(self) -> str:
        layout = "channels last" if self.channels_last else "channels first"
        return f"{self.processes} x {self.threads}, {layout}"  # processes x threads


def train(setting: Setting) -> Iterator[float]:
    """Images per second; each send of a number of seconds trains as long."""
    torch.set_num_threads(setting.threads)
    layout = torch.channels_last if setting.channels_last else torch.contiguous_format
    net = NetworkSpec(setting.model, setting.shape, 10, setting.width, 0).build().train().to(memory_format=layout)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5, weight_decay=1e-4, fused=True)
    rng = generator(0, "bare")
    images = torch.randn(setting.batch, *setting.shape, generator=rng).to(memory_format=layout)
    labels = torch.randint(0, 10, (setting.batch,), generator=rng)
    for line in sys.stdin:
        started, steps = time.perf_counter(), 0
        while steps < 2 or time.perf_counter() - started < float(line):
            logits, _ = net(images)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
        yield steps * setting.batch / (time.perf_counter() - started)


class Loop:
    """The processes of one setting."""

    def __init__(self, setting: Setting, processes: list[subprocess.Popen[str]]) -> None:
        self.setting, self._processes = setting, processes

    def speed(self, seconds: float) -> float:
        """Images per second of all processes together."""
        for process in self._processes:
            assert process.stdin is not None
            print(seconds, file=process.stdin, flush=True)
        return sum(float(process.stdout.readline()) for process in self._processes if process.stdout)


@contextmanager
def loop(setting: Setting) -> Iterator[Loop]:
    """Start the processes of a setting, which end with the block."""
    with ExitStack() as stack:
        command = [sys.executable, "-m", "benchmarks.speed.bare", json.dumps(asdict(setting))]
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    cwd=Path(__file__).parents[2],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(setting.processes)
        ]
        yield Loop(setting, processes)
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    for found in train(Setting(**{**settings, "shape": tuple(settings["shape"])})):
        print(found, flush=True)
