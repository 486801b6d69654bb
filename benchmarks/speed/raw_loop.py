"""A bare training loop on random tensors: forward, cross-entropy, backward, step, and nothing else.

`python -m benchmarks.speed.raw_loop` is one process of it. Each line of its standard input is a setting and a number of
seconds; it trains as long, and answers how many images it trained on in a second.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from rofl.core.rng import generator
from rofl.simulation.network_spec import NetworkSpec


@dataclass(frozen=True)
class Setting:
    """The network, the batch and the number of threads of the loop."""

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


def stepper(setting: Setting) -> Callable[[], None]:
    """Return a function that does one training step."""
    torch.set_num_threads(setting.threads)
    layout = torch.channels_last if setting.channels_last else torch.contiguous_format
    net = NetworkSpec(setting.model, setting.shape, 10, setting.width, 0).build().train().to(memory_format=layout)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5, weight_decay=1e-4, fused=True)
    rng = generator(0, "bare")
    images = torch.randn(setting.batch, *setting.shape, generator=rng).to(memory_format=layout)
    labels = torch.randint(0, 10, (setting.batch,), generator=rng)

    def step() -> None:
        logits, _ = net(images)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def speed(setting: Setting, seconds: float) -> float:
    """Return the images per second of this process."""
    step, steps = stepper(setting), 0
    step()  # warms up
    started = time.perf_counter()
    while steps < 2 or time.perf_counter() - started < seconds:
        step()
        steps += 1
    return steps * setting.batch / (time.perf_counter() - started)


class Loops:
    """Processes that train with the settings they are sent."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def speed(self, setting: Setting, seconds: float) -> float:
        """Return the images per second of all processes of a setting together."""
        chosen = self._processes[: setting.processes]
        for process in chosen:
            assert process.stdin is not None
            print(json.dumps([asdict(setting), seconds]), file=process.stdin, flush=True)
        return sum(float(process.stdout.readline()) for process in chosen if process.stdout)


@contextmanager
def loops(count: int) -> Iterator[Loops]:
    """Yield this many processes, which end with the block."""
    with ExitStack() as stack:
        command, here = [sys.executable, "-m", "benchmarks.speed.raw_loop"], Path(__file__).parents[2]
        started = [
            subprocess.Popen(command, cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        for process in started:
            stack.enter_context(process)  # waits for its end ...
            stack.callback(process.stdin.close if process.stdin else process.kill)  # ... which this brings
        yield Loops(started)


if __name__ == "__main__":
    for line in sys.stdin:
        fields, long = json.loads(line)
        print(speed(Setting(**{**fields, "shape": tuple(fields["shape"])}), long), flush=True)
