"""What a site lets a coordinator ask for: known ways to read its samples, open without a policy and shut with one."""

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import Context, Message, RecordDict

from rofl.audit.noise_estimation import LabelNoise
from rofl.config.schema import Experiment
from rofl.core.noise_posterior import flat_pattern
from rofl.core.tensors import digest
from rofl.data import user
from rofl.data.downloads import RemoteFile, fetch
from rofl.errors import UserError
from rofl.federation import make_client_app
from rofl.federation.event_log import EventLog, read_log
from rofl.federation.masking.mask_messages import put_session
from rofl.federation.masking.peers import Peer
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.masking.unmasking import new_session
from rofl.federation.negotiate import negotiate
from rofl.federation.noise_records import (
    decode_predictions,
    decode_scores,
    decode_sure,
    put_noise,
    put_noise_facts,
)
from rofl.federation.protocol import Refusal, RoundRequest, decode_update, encode_request
from rofl.federation.site import SiteConfig, read_policy
from rofl.federation.site_data import LocalData
from rofl.federation.site_evaluation import SiteEvaluation
from rofl.federation.site_gate import Declined, SiteGate
from rofl.federation.site_memory import MOST_MODELS, Agreement, AgreementFile, AnsweredRequests
from rofl.federation.site_policy import SitePolicy, write_policy
from rofl.federation.site_report import SiteReport
from rofl.methods.base import ServerState
from rofl.training.inputs import load_inputs
from tests.data.user import places
from tests.federation.in_memory_grid import InMemoryGrid
from tests.flow.called import rofl
from tests.flow.tiny import tiny


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return places.write_folder(tmp_path_factory.mktemp("site") / "scans", with_clients=False, each=10)


class Site:
    """The real code of one site with own data, without a network; the coordinator may ask what it likes."""

    def __init__(self, scans: Path, gate: SiteGate) -> None:
        self.data = LocalData(name="north", source=user.UserSource(str(scans)))
        self.gate, self.app = gate, make_client_app(self.data, lambda context: gate)
        self.context: Context = InMemoryGrid(self.app, [{"partition-id": 0}]).contexts[2]

    def settings(self, **changes: Any) -> Experiment:
        """The settings that an honest coordinator would choose, and changes to them."""
        dotted = {key.replace("__", "."): value for key, value in changes.items()}
        small = {"rounds": 2, "method.name": "plain", "model.name": "mlp", "model.width": 0.5, "method.batch": 8}
        return negotiate([self.data.load()], {**small, **dotted})

    def state(self, chosen: Experiment) -> ServerState:
        experiment, images = self.data.localize_config(chosen, 0)
        return chosen.build_method().init(load_inputs(experiment, None, images)[1].build())

    def ask(
        self, kind: str, chosen: Experiment, state: ServerState | None = None, index: int = 1, state_round: int = 0
    ) -> RecordDict:
        request = encode_request(RoundRequest(chosen.toml(), index, state_round, "[]"), state or self.state(chosen))
        content: RecordDict = self.app(Message(request, 2, kind), self.context).content
        return content


def open_site(scans: Path) -> Site:
    return Site(scans, SiteGate())


def guarded(scans: Path, log: Path | None = None, **conditions: Any) -> Site:
    gate = SiteGate(SitePolicy(**conditions), own_data=True, log=EventLog(log), agreed=AgreementFile())
    gate.answered = AnsweredRequests()
    return Site(scans, gate)


# --- attacks that the settings alone made possible ---


def read_label(site: Site, number: int) -> int:
    """Test a constant model on one sample, which the settings choose: the counts by class are its label."""
    chosen = site.settings(data__validation=number, data__test=1)
    counts = SiteEvaluation.decode(site.ask("evaluate", chosen))
    assert counts.held_out is not None
    assert counts.held_out.samples == 1
    return counts.held_out.labelled.index(1)


def test_single_labels_are_not_read_through_a_test_of_one_sample(scans: Path, tmp_path: Path) -> None:
    labels = user.load_user_data(user.UserSource(str(scans))).train_labels.tolist()
    read = [read_label(open_site(scans), number) for number in (1, 11, 21)]
    assert all(label in labels for label in read)
    assert len(set(read)) > 1  # without a policy the coordinator does learn them
    site = guarded(scans, tmp_path / "log")
    with pytest.raises(Refusal, match=r"asks for data.test = 1, and this site's policy says subsetting = false"):
        read_label(site, 1)
    with pytest.raises(Refusal, match=r"asks for data.validation = 7"):
        site.ask("evaluate", site.settings(data__validation=7))
    assert [entry.event for entry in read_log(tmp_path / "log")] == ["asked", "refused"] * 2


def test_counts_of_few_samples_are_withheld_also_where_the_site_allows_subsets(scans: Path) -> None:
    """The number of samples that counts are of has a limit of its own."""
    site = guarded(scans, subsetting=True)
    counts = SiteEvaluation.decode(site.ask("evaluate", site.settings(data__validation=3, data__test=1)))
    assert (counts.right, counts.tested, counts.held_out and counts.held_out.samples) == (0, 0, 0)


def read_image(site: Site) -> np.ndarray:
    """Train on one sample with a first layer that passes pixels on: batch norm's running mean is the image."""
    chosen = site.settings(data__train=1, data__min_samples=1, method__lr=1e-9, method__epochs=1)
    state = site.state(chosen)
    first = "extractor.1.weight"
    state.model[first] = torch.eye(*state.model[first].shape)
    update = decode_update(site.ask("train", chosen, state))
    return (update.model["extractor.2.running_mean"] / update.weight).numpy()


def likeness(found: np.ndarray, image: np.ndarray) -> float:
    """The best correlation of what was read with an image, which was shifted and mirrored at random for training."""
    best = 0.0
    for candidate in (image, image[:, ::-1]):
        for down in range(-2, 3):
            for right in range(-2, 3):
                rows, columns = slice(max(0, down), 8 + min(0, down)), slice(max(0, right), 8 + min(0, right))
                there = candidate[slice(max(0, -down), 8 - max(0, down)), slice(max(0, -right), 8 - max(0, right))]
                best = max(best, float(np.corrcoef(found[rows, columns].ravel(), there.ravel())[0, 1]))
    return best


def test_an_image_is_not_read_through_batch_norms_running_mean(scans: Path) -> None:
    images = user.load_user_data(user.UserSource(str(scans))).train
    found = read_image(open_site(scans))
    assert max(likeness(found.reshape(8, 8), image) for image in np.asarray(images)[:, 0]) > 0.95  # without a policy
    with pytest.raises(Refusal, match=r"asks for data.train = 1, and this site's policy says subsetting = false"):
        read_image(guarded(scans))
    with pytest.raises(Refusal, match=r"asks for an update of 1 samples, and .* min_samples_per_update = 20"):
        read_image(guarded(scans, subsetting=True))


def test_the_noise_of_privacy_is_not_averaged_out_by_asking_again_and_again(scans: Path) -> None:
    """Fresh noise on each answer would have a mean of 0; what is below it is the update."""
    site = guarded(scans, min_privacy_noise=0.7)
    chosen = site.settings(clients=2, cohort=2, privacy__clip=1.0, privacy__noise=1.0)
    answers = [decode_update(site.ask("train", chosen)).model for _ in range(3)]
    assert all(torch.equal(answers[0][name], each[name]) for each in answers for name in each)
    other = guarded(scans, min_privacy_noise=0.7)  # another site with the same samples has another secret
    assert digest(decode_update(other.ask("train", chosen)).model) != digest(answers[0])
    state = site.state(chosen)
    changed = ServerState({name: value + 1e-6 for name, value in state.model.items()}, state.aux)
    with pytest.raises(Refusal, match="asks for train 1 with yet another model, after 1 before"):
        site.ask("train", chosen, changed)
    assert site.ask("train", chosen, changed, index=2)
    keeping = guarded(scans, min_privacy_noise=0.7)  # a method whose clients keep a state
    chosen = keeping.settings(
        clients=2, cohort=2, privacy__clip=1.0, privacy__noise=1.0, method__name="joint", method__start=1
    )
    keeping.ask("train", chosen)
    with pytest.raises(Refusal, match="asks for train 1 with yet another model"):  # nor from another client state
        keeping.ask("train", chosen, state_round=1)


@pytest.mark.parametrize("kind", ["train", "evaluate", "query.noise", "query.report", "query.finish"])
def test_a_request_is_answered_for_few_models(scans: Path, tmp_path: Path, kind: str) -> None:
    """Counts by class of one model after another would sort all samples along any direction, and give the images."""
    site = guarded(scans)
    site.gate.answered = AnsweredRequests(tmp_path / "answered.json")
    chosen = site.settings(clients=2)
    state = site.state(chosen)
    models = [
        ServerState({name: value + number for name, value in state.model.items()}, state.aux)
        for number in range(MOST_MODELS + 1)
    ]
    if kind == "query.finish":
        site.ask("evaluate", chosen, state)  # what is agreed on
    for each in models[:-1]:
        assert site.ask(kind, chosen, each)
    site.gate.answered = AnsweredRequests(tmp_path / "answered.json")  # a restart forgets nothing
    with pytest.raises(Refusal, match=f"with yet another model, after {MOST_MODELS} before"):
        site.ask(kind, chosen, models[-1])
    assert site.ask(kind, chosen, models[2])


def test_privacy_is_not_asked_for_once_and_left_out_the_next_time(scans: Path, tmp_path: Path) -> None:
    site = guarded(scans, tmp_path / "log")
    private = site.settings(privacy__clip=1.0, privacy__noise=1.0)
    assert decode_update(site.ask("train", private)).weight == 1
    for changed in (site.settings(), site.settings(privacy__clip=1.0, privacy__noise=0.1)):
        for kind in ("train", "evaluate", "query.report", "query.finish"):
            with pytest.raises(Refusal, match="settings differ from those that were agreed on"):
                site.ask(kind, changed)
    assert decode_update(site.ask("train", private, index=2)).weight == 1
    refused = [entry.facts for entry in read_log(tmp_path / "log") if entry.event == "refused"]
    assert [each["kind"] for each in refused] == ["train", "evaluate", "report", "finish"] * 2


def test_what_was_agreed_on_outlives_a_restart(scans: Path, tmp_path: Path) -> None:
    first = Site(scans, SiteGate(SitePolicy(), own_data=True, agreed=AgreementFile(tmp_path / "agreement.toml")))
    first.ask("train", first.settings())
    again = Site(scans, SiteGate(SitePolicy(), own_data=True, agreed=AgreementFile(tmp_path / "agreement.toml")))
    with pytest.raises(Refusal, match="settings differ"):
        again.ask("train", again.settings(seed=1))
    again.ask("train", again.settings())


# --- every condition ---

REFUSED: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], str]] = {  # settings, policy, sentence
    "client_index": ({"data__client_index": 0}, {}, "asks for data.client_index = 0"),
    "samples": ({"data__samples_per_client": 2}, {}, "asks for data.samples_per_client = 2"),
    "holdout": ({"data__holdout": 0.01}, {}, "asks for data.holdout = 0.01"),
    "most held out": ({"data__holdout": 0.95}, {}, "asks for data.holdout = 0.95"),
    "labels": ({"noise__on_user_data": True, "noise__ratio": 0.2}, {}, "asks for noise.on_user_data = true"),
    "batch": ({"method__batch": 2}, {}, "asks for method.batch = 2, and this site's policy says min_batch = 8"),
    "method": ({}, {"methods": ["rofl"]}, "asks for method.name = plain"),
    "model": ({}, {"models": ["cnn9"]}, "asks for model.name = mlp"),
    "noise": ({}, {"min_privacy_noise": 0.5}, "asks for privacy.noise = 0, and .* min_privacy_noise = 0.5"),
    "clip": ({"privacy__clip": 9.0}, {"max_privacy_clip": 1.0}, "asks for privacy.clip = 9"),
    "rounds": ({"rounds": 7}, {"max_rounds": 6}, "asks for rounds = 7, and this site's policy says max_rounds = 6"),
    "epochs": ({"method__epochs": 60}, {}, "asks for method.epochs = 60"),
    "inner steps": (
        {"method__name": "fedfixer", "method__inner_steps": 10**9, "method__epochs": 1},
        {},
        "asks for method.inner_steps = 1000000000 in 1 epochs, and this site's policy says max_epochs = 50",
    ),
    "few samples": ({}, {"min_samples_per_update": 50}, "asks for an update of 48 samples"),
    "masks": ({}, {"masks": "always"}, 'asks for sums without masks, and this site\'s policy says masks = "always"'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_the_policy_does_not_allow_is_refused_in_one_sentence(name: str, scans: Path) -> None:
    changes, conditions, sentence = REFUSED[name]
    site = guarded(scans, **conditions)
    chosen = site.settings(**changes)
    with pytest.raises(Refusal, match=sentence) as refused:
        site.ask("train", chosen)
    assert len(str(refused.value).splitlines()) == 1


def test_weights_from_the_internet_are_refused(scans: Path) -> None:
    site = guarded(scans)
    text = site.settings().toml().replace('weights = ""', 'weights = "imagenet"').replace('"mlp"', '"resnet50"')
    with pytest.raises(
        Refusal, match=r"asks for model.weights = imagenet, and this site's policy says downloads = fal"
    ):
        site.gate.admit("train", RoundRequest(text, 1))


def test_nothing_is_imported_that_only_the_coordinator_names(scans: Path) -> None:
    site, foreign = guarded(scans), "antigravity_of_the_coordinator:Method"
    for text in (
        site.settings().toml().replace('name = "plain"', f'name = "{foreign}"'),
        site.settings().toml().replace('name = "mlp"', f'name = "{foreign}"'),
        site.settings().toml().replace('name = "own"', f'name = "{foreign}"'),
    ):
        with pytest.raises(
            Refusal, match=r"asks for the name antigravity_of_the_coordinator:Method, .* plugins = \[\]"
        ):
            site.gate.admit("train", RoundRequest(text, 1))


@pytest.mark.parametrize(
    ("index", "text", "sentence"),
    [(3, "", "asks for round 3 of 2"), (1, "#" * 2**20, "settings are too long")],
)
def test_rounds_beyond_the_last_and_endless_settings_are_refused(
    index: int, text: str, sentence: str, scans: Path
) -> None:
    site = guarded(scans)
    with pytest.raises(Refusal, match=sentence):
        site.gate.admit("train", RoundRequest(site.settings().toml() + text, index))


@pytest.mark.parametrize("text", ["= 1", "a" * 1000 + "[", "x = " + "[" * 5000, "x = " + "9" * 5000])
def test_settings_that_cannot_be_read_are_refused(text: str, scans: Path) -> None:
    with pytest.raises(Refusal, match="The coordinator's settings cannot be read"):
        guarded(scans).gate.admit("train", RoundRequest(text, 1))


def test_sums_are_asked_for_with_settings_only(scans: Path) -> None:
    with pytest.raises(UserError):
        guarded(scans).gate.admit("train", RoundRequest("", 1))
    guarded(scans).gate.admit("describe", RoundRequest(""))


def test_three_sites_must_be_masked_by_default_and_two_need_not(scans: Path) -> None:
    site = guarded(scans)
    two, three = (site.settings(clients=count, cohort=count, transport="fixed") for count in (2, 3))
    site.ask("train", two)
    with pytest.raises(Refusal, match='asks for sums without masks, and this site\'s policy says masks = "if three"'):
        guarded(scans).ask("train", three)
    masks = {client: SiteMasks(client) for client in range(3)}
    masked = guarded(scans)
    masked.gate.masks = masks[0]
    session = new_session([Peer(client, own.public) for client, own in masks.items()])
    request = encode_request(RoundRequest(three.toml(), 1), masked.state(three))
    content = masked.app(Message(put_session(request, session), 2, "train"), masked.context).content
    assert "masked" in content
    with pytest.raises(Refusal, match="without masks, after some with masks"):
        masked.ask("evaluate", three)


def test_counts_that_may_not_leave_are_zeros(scans: Path, tmp_path: Path) -> None:
    site = guarded(scans, tmp_path / "log", send_evaluation=False, send_suspects=False)
    chosen = site.settings()
    site.ask("train", chosen)
    counts = SiteEvaluation.decode(site.ask("evaluate", chosen), classes=3)
    assert (counts.right, counts.tested) == (0, 0)
    for kind in ("query.report", "query.finish"):
        report = SiteReport.decode(site.ask(kind, chosen), classes=3)
        assert (report.samples, report.flagged, int(report.transition.sum())) == (0, 0, 0)
    withheld = [entry.facts["kind"] for entry in read_log(tmp_path / "log") if entry.event == "withheld"]
    assert withheld == ["evaluate", "report", "report"]


def test_tables_of_few_samples_are_withheld_at_the_end(scans: Path, tmp_path: Path) -> None:
    """A coordinator may ask for them without a single round of training, which would be refused."""
    site = guarded(scans, tmp_path / "log", min_samples_per_update=49, masks="any")
    chosen = site.settings(clients=2)
    counts = decode_predictions(site.ask("query.noise", chosen), 3, 1000)
    request = encode_request(RoundRequest(chosen.toml(), 1), site.state(chosen))
    sure = put_noise_facts(request, 0.9, flat_pattern(3))
    sums, held_out = decode_sure(site.app(Message(sure, 2, "query.sure"), site.context).content, 1000, flat_pattern(3))
    scored = put_noise(request, LabelNoise(torch.lerp(torch.eye(3).double(), flat_pattern(3), 0.25), 0.0, 1.0))
    scores = decode_scores(site.app(Message(scored, 2, "query.scores"), site.context).content, 1000)
    assert (held_out.samples, scores.samples) == (0, 0)
    report = SiteReport.decode(site.ask("query.report", chosen), classes=3)
    assert (counts.samples, sums.samples, report.samples, int(report.transition.sum())) == (0, 0, 0, 0)
    assert [entry.facts["kind"] for entry in read_log(tmp_path / "log") if entry.event == "withheld"] == [
        *("noise", "sure", "scores", "report"),
    ]


def test_by_default_an_ordinary_run_is_allowed(scans: Path) -> None:
    site = guarded(scans)
    chosen = site.settings()
    assert decode_update(site.ask("train", chosen)).weight == 48
    assert SiteEvaluation.decode(site.ask("evaluate", chosen)).tested == 12
    assert SiteReport.decode(site.ask("query.finish", chosen), classes=3).samples == 48


def test_nothing_is_downloaded_where_the_policy_says_so(tmp_path: Path) -> None:
    remote = RemoteFile("mnist.gz", "https://example.org/mnist.gz", "md5:0")
    with SiteGate(SitePolicy()).limits(), pytest.raises(UserError, match=r"mnist.gz is not in .*nothing is downloaded"):
        fetch(tmp_path, remote)
    (tmp_path / "mnist.gz").touch()
    with SiteGate(SitePolicy()).limits():
        assert fetch(tmp_path, remote) == tmp_path / "mnist.gz"


# --- consent ---


def test_settings_are_shown_once_before_consent(scans: Path) -> None:
    shown: list[Agreement] = []

    def consent(agreement: Agreement, masked: bool) -> bool:
        assert masked is False
        shown.append(agreement)
        return True

    site = guarded(scans)
    site.gate.consent = consent
    chosen = site.settings(privacy__clip=0.5)
    site.ask("train", chosen)
    site.ask("train", chosen, index=2)
    (agreement,) = shown
    assert agreement.experiment == chosen
    text = " ".join(agreement.lines(masked=False))
    for word in ("Method plain", "network mlp", "2 rounds of", "1 of 1 site a", "not masked", "clip 0.5, noise 0"):
        assert word in text


@pytest.mark.parametrize(
    ("rounds", "epochs", "clients", "line"),
    [
        (12, 1, 3, "12 rounds of 1 local epoch, 1 of 3 sites a round."),
        (1, 2, 1, "1 round of 2 local epochs, 1 of 1 site a round."),
    ],
)
def test_one_epoch_is_not_called_epochs(rounds: int, epochs: int, clients: int, line: str) -> None:
    asked = tiny(rounds=rounds, clients=clients, cohort=1, method__epochs=epochs)
    assert Agreement(asked.toml(), asked).lines(masked=True)[1] == line


def test_a_site_that_declines_trains_nothing_and_is_asked_again(scans: Path, tmp_path: Path) -> None:
    site = guarded(scans, tmp_path / "log")
    site.gate.consent = lambda agreement, masked: False
    for _ in range(2):
        with pytest.raises(Declined, match="This site declined to take part"):
            site.ask("train", site.settings())
    assert [entry.event for entry in read_log(tmp_path / "log")] == ["asked", "refused"] * 2


# --- the file ---


def test_the_file_that_is_written_is_the_default_policy(tmp_path: Path) -> None:
    write_policy(tmp_path / "policy.toml")
    assert SitePolicy.read(tmp_path / "policy.toml") == SitePolicy()
    assert read_policy(SiteConfig(credentials=tmp_path)) == SitePolicy()
    text = (tmp_path / "policy.toml").read_text()
    assert text.count("\n# ") == len(SitePolicy.model_fields)  # a comment on each
    with pytest.raises(UserError, match="already exists"):
        write_policy(tmp_path / "policy.toml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "min_sample_per_update = 5",
            "There is no condition of a policy 'min_sample_per_update'. Try: 'min_samples_per",
        ),
        ("max_rounds = 0", "max_rounds: Input should be greater than or equal to 1"),
        ("downloads = 'perhaps'", "downloads: Input should be a valid boolean"),
        ("masks = 'never'", "masks: Input should be"),
        ("max_rounds = = 1", "cannot be read as TOML"),
        ("\x00", "cannot be read as TOML"),
    ],
)
def test_a_policy_with_a_mistake_is_an_error_and_not_the_default(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=sentence.replace("(", r"\(")) as wrong:
        read_policy(SiteConfig(credentials=tmp_path))
    assert len(str(wrong.value).splitlines()) == 1


def test_a_policy_that_is_named_must_be_there(tmp_path: Path) -> None:
    assert read_policy(SiteConfig(credentials=tmp_path)) == SitePolicy()
    with pytest.raises(UserError, match=r"no.toml cannot be read as TOML"):
        read_policy(SiteConfig(policy=tmp_path / "no.toml"))


def test_a_policy_on_a_disk_that_is_not_there_is_an_error_and_not_the_default(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").symlink_to(tmp_path / "disk" / "strict.toml")
    with pytest.raises(UserError, match=r"policy.toml cannot be read as TOML"):
        read_policy(SiteConfig(credentials=tmp_path))


def test_the_command_writes_it_beside_the_credentials(tmp_path: Path) -> None:
    done = rofl("join", "--init-policy", "--policy", "own.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "own.toml has the defaults" in " ".join(done.stderr.split())
    assert SitePolicy.read(tmp_path / "own.toml") == SitePolicy()


def test_the_log_is_for_this_user_and_has_what_left(scans: Path, tmp_path: Path) -> None:
    site = guarded(scans, tmp_path / "log")
    chosen = site.settings()
    site.ask("train", chosen)
    site.ask("evaluate", chosen)
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600
    events = read_log(tmp_path / "log")
    assert [entry.event for entry in events] == ["asked", "agreed", "sent", "asked", "sent"]
    assert events[1].facts["settings"] == chosen.toml()
    sent = events[2].facts
    assert "model/extractor.1.weight float32 (64, 64)" in sent["tensors"]
    assert sent["numbers"]["weight"] == 48
    update = site.state(chosen)
    assert sent["bytes"] == sum(value.nbytes for value in update.model.values())
    assert sent["norm"]["model"] > 0
    assert events[4].facts["numbers"]["tested"] == 12
    assert json.loads((tmp_path / "log").read_text().splitlines()[0])["masked"] is False
