"""Measure the bytes of a round: in float32, in bfloat16, and compressed without loss."""

import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch

import rofl
from benchmarks.speed.result_table import Aim, Section
from rofl.core.tensors import Tensors, to_bf16
from rofl.federation.protocol import RoundRequest, encode_request
from rofl.methods import Rofl, ServerState, Update
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.run_dir import RunDir

SMALL, LARGE = "small, digits", "cnn9, CIFAR-10"
NETWORKS = {
    SMALL: NetworkSpec("small", (1, 8, 8), 10, 1.0, seed=0),
    "cnn9 at 1/8, CIFAR-10": NetworkSpec("cnn9", (3, 32, 32), 10, 0.125, seed=0),
    "cnn9 at 1/4, CIFAR-10": NetworkSpec("cnn9", (3, 32, 32), 10, 0.25, seed=0),
    LARGE: NetworkSpec("cnn9", (3, 32, 32), 10, 1.0, seed=0),
    "ResNet-50, 14 classes": NetworkSpec("resnet50", (3, 224, 224), 14, 1.0, seed=0),
}
ROUNDS = 20
HOW = """What one client gets and sends in one round of rofl: bytes of the tensors of `init` and `zero_update`, weights
and centroids. *Half* is `transport = "half"`. The aims are about the record that the Flower wire makes for the small
network, with its headers and layout, and about what rounding costs in accuracy. The last rows are that network's
weights after the run on digits, packed without loss by zlib at a level; *shuffled* means all first bytes first, then
all second ones. rofl does not pack: the rows show what it would save."""


def measure() -> Section:
    """Return the section: bytes down and up, and their compressed sizes."""
    rows, shares = [], {}
    for name, network in NETWORKS.items():
        server_state, up = _sent(network)
        shares[name] = _share(server_state.aux, server_state.model)
        cells = [f"{_bytes(make(one.model | one.aux)):,}" for make in (dict, to_bf16) for one in (server_state, up)]
        rows.append([name, *cells, f"{100 * shares[name]:.3f} %"])
    server_state = _sent(NETWORKS[SMALL])[0]
    counted = _bytes(to_bf16(server_state.model | server_state.aux))
    full, half = (_on_the_wire(server_state, transport) for transport in ("full", "half"))
    rows.append([f"{SMALL}, the wire's record", f"{full:,}", "", f"{half:,}", "", ""])
    (accuracy, model), (halved_accuracy, _) = _trained("full"), _trained("half")
    aims = [
        Aim("half / full, bytes of a record", half / full, 0.51, most=True),
        Aim("a record / its tensors, bytes with half", half / counted, 1.02, most=True),
        Aim("share of the centroids with cnn9", shares[LARGE], 0.0005, most=True),
        Aim(f"points of accuracy lost by half, digits, {ROUNDS} rounds", accuracy - halved_accuracy, 1, most=True),
    ]
    header = ("network", "full, down", "full, up", "half, down", "half, up", "centroids, down")
    return Section("Bytes on the line", HOW, header, [*rows, *_lossless(model)], aims)


def _sent(network: NetworkSpec) -> tuple[ServerState, Update]:
    """Return a server state, and an update of the same shapes."""
    method = Rofl(tau=0.4)
    server_state = method.init(network.build())
    return server_state, method.zero_update(server_state)


def _on_the_wire(server_state: ServerState, transport: str) -> int:
    """Return the bytes of a request as Flower stores and sends it, without its settings, which do not differ."""
    content = encode_request(RoundRequest(f'transport = "{transport}"'), server_state)
    arrays = sum(len(array.data) for array in content.array_records["arrays"].values())
    return arrays + sum(len(str(text)) for text in content.config_records["layout"].values())


def _trained(transport: str) -> tuple[float, Tensors]:
    """Return the accuracy (mean of the last ten rounds) and the weights of a run on digits."""
    with tempfile.TemporaryDirectory() as place:
        done = rofl.run(rofl.preset("digits", rounds=ROUNDS, transport=transport), Path(place) / "run")
        checkpoint = RunDir(done.folder).checkpoints.read()
        assert checkpoint is not None
        return done.summary.test_accuracy, checkpoint.server_state.model


def _lossless(model: Tensors) -> list[list[str]]:
    """Return the sizes of compressed weights, and the share of bytes that is saved."""
    full, half = (torch.cat([value.flatten() for _, value in sorted(make(model).items())]) for make in (dict, to_bf16))
    raw = {4: full.numpy().tobytes(), 2: half.view(torch.uint16).numpy().tobytes()}
    rows = []
    for name, level, shuffled in (("zlib 6", 6, False), ("shuffled, zlib 1", 1, True), ("shuffled, zlib 6", 6, True)):
        cells = []
        for width, plain in raw.items():
            packed = len(zlib.compress(_shuffled(plain, width) if shuffled else plain, level))
            cells += [f"{packed:,} (-{100 * (1 - packed / len(plain)):.1f} %)", ""]
        rows.append([f"small, weights, {name}", *cells, ""])
    return rows


def _shuffled(raw: bytes, width: int) -> bytes:
    """Return the bytes regrouped by their position in a number: signs and exponents are alike, and compress better."""
    return np.frombuffer(raw, np.uint8).reshape(-1, width).T.tobytes()


def _bytes(tensors: Tensors) -> int:
    return sum(value.numel() * value.element_size() for value in tensors.values())


def _share(part: Tensors, rest: Tensors) -> float:
    return _bytes(part) / (_bytes(part) + _bytes(rest))


if __name__ == "__main__":
    print(measure().markdown())
