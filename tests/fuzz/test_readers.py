"""Every reader of files, on files that were damaged at random: one sentence or a result, soon, in little memory.

300 files for each in `make test`, 10,000 in `make slow`, from fixed seeds. What must not happen: an exception that is
no `UserError`, more than 10 seconds for a file, and more than 256 MB of memory beyond what the process has.
"""

import functools
import io
import json
import os
import random
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import RecordDict
from PIL import Image

import rofl
from rofl.audit.label_tools.export_suspects import Tool
from rofl.audit.noise_estimation import LabelNoise
from rofl.audit.result import NoiseEstimate
from rofl.audit.sample_issues import SampleIssue
from rofl.audit.suspect_list import read_issues, read_suspects, write_issues
from rofl.config.schema import Experiment
from rofl.data.image_io import decode_image, describe_error, inspect_image
from rofl.data.label_csv import Decision, read_decisions, read_labels, write_decisions, write_labels
from rofl.data.specs import DataSpec
from rofl.data.split_file import read_split, write_split
from rofl.data.user import UserSource, load_user_data
from rofl.data.user.shared_columns import parse_columns
from rofl.data.user.table_encoder import TableEncoder
from rofl.errors import UserError
from rofl.federation.credentials import ServerCredentials, SiteCredentials
from rofl.federation.event_log import LOG_FILE, EventLog, read_log
from rofl.federation.final_reports import FinalReports
from rofl.federation.health import check_health
from rofl.federation.issue_credentials import make_credentials
from rofl.federation.masking.peers import MaskSession, Peer
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.protocol import put_sums
from rofl.federation.server_config import ServerConfig
from rofl.federation.site import SiteConfig, read_policy
from rofl.federation.site_info import SiteInfo, SitesFile
from rofl.federation.site_memory import AgreementFile
from rofl.federation.site_policy import write_policy
from rofl.federation.site_report import SiteReport
from rofl.report.live.run_watcher import RunWatcher
from rofl.simulation.client import ClientStateStore
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.checkpoint_files import Checkpoint
from rofl.training.loop import load_or_init
from rofl.training.records import AuditRecord
from rofl.training.run_dir import RunDir, cut_round_log
from tests.audit import reviews
from tests.data.test_dicom import RAMP, dicom
from tests.data.user import places
from tests.flow.tiny import tiny
from tests.fuzz.mutations import Mutation, mutate, mutate_safetensors, mutate_zip

FILES, MANY_FILES = 300, int(os.environ.get("ROFL_FUZZ_FILES", "10000"))
SECONDS, MEGABYTES = 10, 384  # a picture of the most pixels that are read takes 256, and a copy of one channel 64
CLASSES = ("cat", "dog")
FORGIVING = (  # they never refuse, or hardly ever
    *("features", "image png", "image jpeg", "image gif", "image bmp", "image tiff", "image webp"),
    *("image dicom", "agreement.toml", "mask key", "live view of rounds", "live view of a site"),
)


@dataclass
class Reader:
    """A reader with a sound file for it.

    Attributes:
        path: the file, which is damaged in place.
        read: reads it.
        mutation: how it is damaged.
    """

    path: Path
    read: Callable[[], object]
    mutation: Mutation = mutate

    def sound(self) -> bytes:
        """The content of the sound file."""
        return self.path.read_bytes()

    def take(self, content: bytes) -> None:
        """Let the next reading be of this content."""
        overwrite(self.path, content)


class InMemory(Reader):
    """A reader of bytes, for which nothing is written."""

    def __init__(self, content: bytes, read: Callable[[bytes], object]) -> None:
        self._sound = self._content = content
        super().__init__(Path(), lambda: read(self._content))

    def sound(self) -> bytes:
        return self._sound

    def take(self, content: bytes) -> None:
        self._content = content


class Hang(BaseException):
    """Nothing handles it."""


@contextmanager
def alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def memory(field: str) -> int:
    """Megabytes of this process: VmRSS now, VmHWM at most."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) // 1024


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A finished run whose clients keep states."""
    place = tmp_path_factory.mktemp("fuzz") / "run"
    experiment = tiny(method="joint", rounds=2, method__start=1, clients=2, cohort=2, data__train=20, data__test=10)
    return RunDir(rofl.run(experiment, place, workers=0).folder)


def overwrite(path: Path, content: bytes) -> None:
    """Without a moment of no bytes: on such a file ext4 waits for the disk."""
    file = os.open(path, os.O_WRONLY)
    try:
        assert os.write(file, content) == len(content)
        os.ftruncate(file, len(content))
    finally:
        os.close(file)


def read_checkpoint(run: RunDir, experiment: Experiment) -> object:
    """What a resume reads of the checkpoint, and what an audit reads."""
    log = run.log_path.read_bytes()
    start = load_or_init(run, experiment, NetworkSpec("mlp", (1, 8, 8), 10, 0.125, 0))
    history = run.read_history()[: start.index]
    try:
        cut_round_log(run.log_path, len(history), start.index, start.log_digest)
    finally:
        overwrite(run.log_path, log)  # a checkpoint of an earlier round cuts it
    return run.checkpoints.read_saved_model(run.read_summary())


def read_rounds(run: RunDir, start: Checkpoint) -> None:
    """What a resume reads of the rounds, beside a sound checkpoint."""
    cut_round_log(run.log_path, len(run.read_history()[: start.index]), start.index, start.log_digest)


def show(folder: Path) -> str:
    """What a browser gets of a run folder."""
    return json.dumps(asdict(RunWatcher(folder).view()), allow_nan=False)


def run_readers(run: RunDir, place: Path) -> dict[str, Reader]:
    """The files of a run."""
    shutil.copytree(run.path, place / "run")
    here = RunDir(place / "run")
    experiment, checkpoint = here.read_experiment(), here.checkpoints.newest_path
    start = load_or_init(here, experiment, NetworkSpec("mlp", (1, 8, 8), 10, 0.125, 0))
    state = next((here.path / "states").glob("0-*"))
    encoder = load_user_data(UserSource(str(places.write_table(place / "patients.csv")))).encoder
    here.model.write_encoder(encoder)
    suspects = here.path / "suspects" / "0.csv"
    pair = SampleIssue(1, "0", "a", "cat", "near duplicate", 0.5, "b", 0, "dog")
    issues = here.path / "issues" / "0.csv"
    write_issues(issues, [pair, SampleIssue(2, "0", "c", "cat", "outlier", 0.7)])
    estimated = NoiseEstimate(0.1, {"0": 0.1}, [[1.0, 0.0], [0.0, 1.0]])
    spec = DataSpec(path="photos")
    here.audit.write_record(
        AuditRecord(model="m", method="rofl", digest="d", data=spec, classes=["a", "b"], estimated=estimated)
    )
    here.audit.write_noise(LabelNoise(torch.eye(2, dtype=torch.float64), 0.5))
    states = ClientStateStore(here.states, {0: int(state.stem.partition("-")[2])})
    return {
        "config": Reader(here.path / "config.toml", here.read_experiment),
        "checkpoint": Reader(checkpoint, lambda: read_checkpoint(here, experiment), mutate_safetensors),
        "metrics": Reader(here.log_path, lambda: read_rounds(here, start)),
        "live view of rounds": Reader(here.log_path, lambda: show(here.path)),
        "summary": Reader(here.path / "summary.json", lambda: here.checkpoints.check_summary(here.read_summary())),
        "suspects": Reader(suspects, lambda: read_suspects(suspects)),
        "issues": Reader(issues, lambda: read_issues(issues)),
        "audit record": Reader(here.path / "audit.json", here.audit.read_record),
        "features": Reader(here.path / "features.safetensors", here.audit.read_features, mutate_safetensors),
        "model record": Reader(here.path / "model.json", here.model.read_record),
        "encoder": Reader(here.path / "encoder.json", here.model.read_encoder),
        "noise": Reader(here.path / "noise.json", lambda: here.audit.read_noise(2)),
        "client state": Reader(state, lambda: states.load(0), mutate_safetensors),
    }


def data_readers(place: Path) -> dict[str, Reader]:
    """The forms of user data."""

    def load(path: Path) -> Reader:
        read = functools.partial(load_user_data, UserSource(str(path), side=8, channels=1))
        return Reader(path, read, mutate_zip if path.suffix == ".npz" else mutate)

    table = places.write_table(place / "table.csv", rows=16)
    lines = [line.split(",") for line in table.read_text().splitlines()]
    columns = {name: [line[number] for line in lines[1:]] for number, name in enumerate(lines[0])}
    columns["height"] = [int(height) for height in columns["height"]]
    columns["seen"] = pyarrow.array([10**15] * len(columns["height"]), pyarrow.timestamp("us"))
    parquet = place / "table.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), parquet, compression="zstd")
    few = {"images": np.zeros((6, 8, 8), np.uint8), "labels": np.array(CLASSES * 3), "clients": None}
    for number in range(6):
        places.save(place / "pictures" / f"{number}.png", places.picture(number % 2, number))
    manifest = place / "list.csv"
    rows = [(f"pictures/{number}.png", CLASSES[number % 2], "north") for number in range(6)]
    places.write_csv(manifest, [("path", "label", "client"), *rows])
    files = {"csv": table, "parquet": parquet, "npz": places.write_arrays(place / "few.npz", **few)}
    return {name: load(path) for name, path in {**files, "manifest": manifest}.items()}


def label_readers(place: Path) -> dict[str, Reader]:
    """Corrected labels, decisions, and a split."""
    samples, given = ["a", "b", "c"], torch.tensor([0, 1, 0])
    labels, decisions, split = place / "labels.csv", place / "decisions.csv", place / "split.safetensors"
    write_labels(labels, [{"client": "x", "sample": "a", "given": "cat", "label": "dog"}])
    write_decisions(decisions, [Decision("x", "a", "cat", True, "dog"), Decision("x", "b", "dog", False, "dog")])
    spec = tiny(clients=2, cohort=2).split
    write_split(split, given, [torch.tensor([0, 2]), torch.tensor([1])], given, spec)
    return {
        "labels": Reader(labels, lambda: read_labels(labels, samples, CLASSES, given)),
        "decisions": Reader(decisions, lambda: read_decisions(decisions, samples, CLASSES, given)),
        "split": Reader(split, lambda: read_split(split, given, 2, spec), mutate_safetensors),
    }


def review_readers(place: Path) -> dict[str, Reader]:
    """What labelling tools export."""
    judged = reviews.photos(place / "judged", each=2)
    tools: dict[Tool, tuple[str, Callable[[Path, reviews.Judged, Path], Path], Mutation]] = {
        "label-studio": ("review.json", reviews.review_label_studio, mutate),
        "cvat": ("review.zip", reviews.review_cvat, mutate_zip),
        "datalab": ("review.csv", reviews.review_datalab, mutate),
    }
    readers = {}
    for tool, (name, review, mutation) in tools.items():
        path = review(judged.export(tool, place / tool).parent, judged, place / name)
        readers[f"review by {tool}"] = Reader(path, functools.partial(judged.read, path), mutation)
    return readers


def image_readers() -> dict[str, Reader]:
    """Images in every format; what cannot be decoded has a reason, and no exception is of another kind."""

    def look(content: bytes) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if inspect_image(content).error:
                return None
            try:
                return decode_image(content, 8, 3)
            except Exception as error:  # as `decode_all` does
                return describe_error(error)

    sound = {"dicom": dicom(RAMP, WindowCenter=1000, WindowWidth=1000)}
    for suffix in ("png", "jpeg", "gif", "bmp", "tiff", "webp"):
        file = io.BytesIO()
        Image.fromarray(places.picture(1, 1)).save(file, suffix)
        sound[suffix] = file.getvalue()
    return {f"image {suffix}": InMemory(content, look) for suffix, content in sound.items()}


def masked_site(folder: Path) -> Path:
    """A site that has sent one masked sum, as it would after a restart."""
    sites = [SiteMasks(0, folder), SiteMasks(1), SiteMasks(2)]
    session = MaskSession(b"a sum of 16 byte", tuple(Peer(each.client, each.public) for each in sites))
    sites[0].mask(put_sums(RecordDict(), {"weight": 1.0}), session, "train 1")
    return folder


def federation_readers(place: Path) -> dict[str, Reader]:
    """What a coordinator and a site read beside the run."""
    make_credentials(place / "keys", ["north", "south"], [])
    server, site = place / "keys" / "server", place / "keys" / "sites" / "north"
    config = ServerConfig.create(server).updated("127.0.0.1:9000")
    config.write(place)
    write_policy(site / "policy.toml")
    log = EventLog(place / LOG_FILE)
    for index in range(3):
        log.write("sent", kind="train", round=index, tensors=["model/w float32 (2,)"])
    shutil.copy(place / LOG_FILE, site / LOG_FILE)
    masks = masked_site(place / "masks")
    SitesFile(place / "sites.json").write({0: SiteInfo(0, "north", 40, 8, 3, ("cat", "dog"), bytes(32), b"signed")})
    final_reports = FinalReports(place / "farewells.json")
    final_reports.add(0, SiteReport(2, 1, torch.eye(2, dtype=torch.int64)))
    final_reports.add_sum([SiteReport(4, 2, 2 * torch.eye(2, dtype=torch.int64))])
    columns, agreement = place / "columns.json", place / "agreement.toml"
    columns.write_text(TableEncoder.fit(["a", "b"], [("1", "x"), ("2", "y")], [0, 1]).to_json())
    agreement.write_text(tiny().toml())
    certificate = server / "certificates" / "north.pem"
    return {
        "sites.json": Reader(place / "sites.json", SitesFile(place / "sites.json").read),
        "farewells.json": Reader(place / "farewells.json", lambda: FinalReports(place / "farewells.json")),
        "columns": Reader(columns, lambda: parse_columns(columns.read_text(errors="replace"))),
        "agreement.toml": Reader(agreement, lambda: AgreementFile(agreement)),
        "mask key": Reader(masks / "key", lambda: SiteMasks(0, masks)),
        "mask memory": Reader(masks / "memory.json", lambda: SiteMasks(0, masks)),
        "mask reply": Reader(masks / "reply.safetensors", lambda: SiteMasks(0, masks), mutate_safetensors),
        "a site's certificate": Reader(certificate, lambda: ServerCredentials.read(server).admitted),
        "policy.toml": Reader(site / "policy.toml", lambda: read_policy(SiteConfig(credentials=site))),
        "federation log": Reader(place / LOG_FILE, lambda: read_log(place)),
        "live view of a site": Reader(place / LOG_FILE, lambda: show(place)),
        "health of a site": Reader(site / LOG_FILE, lambda: check_health(site)),
        "serve.toml": Reader(place / "serve.toml", lambda: ServerConfig.read(place)),
        "sites.toml": Reader(server / "sites.toml", lambda: ServerCredentials.read(server)),
        "site.toml": Reader(site / "site.toml", lambda: SiteCredentials.read(site)),
        "site.key": Reader(site / "site.key", lambda: SiteCredentials.read(site)),
        "server.pem": Reader(server / "server.pem", lambda: ServerCredentials.read(server)),
    }


def damage(name: str, reader: Reader, count: int) -> None:
    """Read so many damaged files."""
    sound = reader.sound()
    reader.read()
    Path("/proc/self/clear_refs").write_text("5")  # the most memory so far is what there is now
    before = memory("VmHWM")
    refused = 0
    for number in range(count):
        reader.take(reader.mutation(sound, random.Random(f"{name} {number}")))
        try:
            with alarm():
                reader.read()
        except UserError:
            refused += 1
        except BaseException as error:
            raise AssertionError(f"{name} {number}: {type(error).__name__}") from error
    reader.take(sound)
    assert memory("VmHWM") - before < MEGABYTES, name
    assert refused >= (0 if name in FORGIVING else count // 10), f"{name}: {refused} of {count} were refused"


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROFL_CACHE", "/dev/null")  # where no folder can be


def all_readers(run: RunDir, place: Path) -> dict[str, Reader]:
    readers = run_readers(run, place) | data_readers(place) | label_readers(place) | image_readers()
    return readers | review_readers(place) | federation_readers(place)


def test_every_reader_survives_damaged_files(run: RunDir, tmp_path: Path) -> None:
    for name, reader in all_readers(run, tmp_path).items():
        damage(name, reader, FILES)


@pytest.mark.slow
def test_every_reader_survives_many_damaged_files(run: RunDir, tmp_path: Path) -> None:
    failures = []  # of all readers, since one run takes minutes
    for name, reader in all_readers(run, tmp_path).items():
        try:
            damage(name, reader, MANY_FILES)
        except AssertionError as error:
            failures.append(f"{error}: {error.__cause__!r}")
    assert not failures
