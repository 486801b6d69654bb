"""The site's gate: every request of the coordinator passes it, and so does everything that leaves the site."""

import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256

import torch
from flwr.app import RecordDict

from rofl.audit.held_out_noise import HeldOutSums, ScoreSums
from rofl.audit.noise_estimation import LabelNoise, PredictionSums, SureSums
from rofl.config.schema import experiment_from_toml
from rofl.core.settings import Settings
from rofl.data.downloads import downloads_allowed
from rofl.errors import UserError
from rofl.federation.agreement import Agreement, AgreementFile
from rofl.federation.answered import MOST_MODELS, AnsweredRequests
from rofl.federation.event_log import EventLog
from rofl.federation.masking.mask_messages import get_shares
from rofl.federation.masking.peers import MaskSession
from rofl.federation.masking.site_masks import AT_END, SiteMasks
from rofl.federation.message_facts import describe_content
from rofl.federation.noise_records import get_noise, no_held_out
from rofl.federation.protocol import Refusal, RoundRequest
from rofl.federation.site_evaluation import VOTE, SiteEvaluation, get_vote
from rofl.federation.site_info import SiteInfo
from rofl.federation.site_policy import SitePolicy, check_count, check_names, check_settings, check_sums, wants_masks
from rofl.federation.site_report import SiteReport

_MAX_SETTINGS = 2**20  # characters
_SUMS = ("train", "evaluate", *AT_END)  # kinds of requests that ask for sums over samples


def _agree(_: Agreement, __: bool) -> bool:
    return True


@dataclass
class SiteGate:
    """Admits requests by the site's policy and by what was agreed on, and logs what was asked and what left.

    The default gate has no policy, and is for data that everybody has.

    Attributes:
        policy: The site's conditions; None to do whatever is asked.
        own_data: Whether the samples are the site's own.
        masks: The site's key and memory for masks; None where it cannot mask its sums.
        log: Where requests, refusals and what left are written.
        agreed: Where the settings of the first contact are kept; None to follow any settings.
        answered: What was answered before; None to answer any number of questions.
        consent: Called once with what the coordinator proposes and whether sums are masked; False declines it.
        on_request: Called with the kind of each request that is admitted.
        on_message: Called with sentences for people.
    """

    policy: SitePolicy | None = None
    own_data: bool = False
    masks: SiteMasks | None = None
    log: EventLog = field(default_factory=EventLog)
    agreed: AgreementFile | None = None
    answered: AnsweredRequests | None = None
    consent: Callable[[Agreement, bool], bool] = _agree
    on_request: Callable[[str, RoundRequest], None] = lambda kind, request: None
    on_message: Callable[[str], None] = lambda text: None

    def admit(
        self, kind: str, request: RoundRequest, session: MaskSession | None = None, question: bytes = b""
    ) -> None:
        """Let a request pass, or refuse it.

        Args:
            kind: `describe`, `train`, `evaluate`, `noise`, `sure`, `scores`, `report` or `finish`.
            request: What is asked.
            session: The session of masks that it names; None where it asks for sums without masks.
            question: `read_question` of it.

        Raises:
            Refusal: If the policy does not allow it, it differs from what was agreed on, it was asked with too many
                models before, or nobody consents.
        """
        asked = {"kind": kind, "round": request.index, "masked": session is not None}
        self.log.write("asked", **asked, settings=sha256(request.settings.encode()).hexdigest()[:16])
        try:
            if request.settings or kind != "describe":
                self._check(kind, request, session, question)
        except UserError as error:
            self.log.write("refused", **asked, reason=str(error))
            raise
        self.on_request(kind, request)

    def check_samples(self, samples: int) -> None:
        """Refuse an update that would be computed from too few samples."""
        if self.policy is None or not self.own_data:
            return
        try:
            check_count(self.policy, samples)
        except Refusal as error:
            self.log.write("refused", kind="train", reason=str(error))
            raise

    def greeting(self, info: SiteInfo) -> SiteInfo:
        """Return the greeting with the site's key for masks, and log it."""
        if self.masks is not None:
            info = replace(info, mask_key=self.masks.public, mask_signature=self.masks.signature)
        self.log.write("sent", kind="describe", facts=info.fields())
        return info

    def evaluation(self, counts: SiteEvaluation) -> SiteEvaluation:
        """Return the counts of a test as the policy allows them to leave; zeros where it does not."""
        if self.policy is not None and not self.policy.send_vote:
            counts = replace(counts, objects=None)
        fewest = min([counts.tested, *([] if counts.held_out is None else [counts.held_out.samples])])
        if self._sends_evaluation(fewest):
            return counts
        self.log.write("withheld", kind="evaluate", samples=fewest)
        return counts.without_counts()

    def report(self, counts: SiteReport) -> SiteReport:
        """Return the counts of suspects as the policy allows them to leave; zeros where it does not."""
        if self._may_leave(counts.samples):
            return counts
        self.log.write("withheld", kind="report")
        return SiteReport(0, 0, torch.zeros_like(counts.transition))

    def predictions(self, sums: PredictionSums) -> PredictionSums:
        """Return the sums for an estimate of the label noise as the policy allows them to leave; zeros if not."""
        if self._may_leave(sums.samples):
            return sums
        self.log.write("withheld", kind="noise")
        return PredictionSums(torch.zeros_like(sums.counts), 0.0)

    def sure(self, sums: SureSums, held_out: HeldOutSums, samples: int) -> tuple[SureSums, HeldOutSums]:
        """Return the sums of the second pass as the policy allows them to leave; zeros where it does not.

        Args:
            sums: Of training samples.
            held_out: Of held-out samples, which leave under the conditions for evaluations.
            samples: How many samples the site trains with.
        """
        if not self._may_leave(samples):
            self.log.write("withheld", kind="sure")
            return SureSums(0, 0), no_held_out()
        if held_out.samples and not self._sends_evaluation(held_out.samples):
            self.log.write("withheld", kind="sure", samples=held_out.samples)
            held_out = no_held_out()
        return sums, held_out

    def scores(self, sums: ScoreSums, samples: int) -> ScoreSums:
        """Return the sums of the third pass as the policy allows them to leave; zeros where it does not.

        Args:
            sums: The sums.
            samples: How many samples the site trains with.
        """
        if self._may_leave(samples):
            return sums
        self.log.write("withheld", kind="scores")
        return ScoreSums(torch.zeros_like(sums.scores), 0)

    def noise(self, content: RecordDict, classes: int) -> tuple[LabelNoise | None, str]:
        """Return the label noise over all sites that a request brings, or why this site estimates it alone.

        Args:
            content: The request.
            classes: How many classes the model has.
        """
        if not self._sends_suspects:
            return None, "its policy says send_suspects = false"
        try:
            noise = get_noise(content, classes)
        except ValueError as error:
            return None, f"the coordinator's estimate was refused: {error}"
        return noise, "" if noise is not None else "the coordinator sends no estimate over all sites"

    @property
    def _sends_suspects(self) -> bool:
        return self.policy is None or not self.own_data or self.policy.send_suspects

    def _sends_evaluation(self, samples: int) -> bool:
        """Return whether the policy lets counts of so many held-out samples leave."""
        if self.policy is None or not self.own_data:
            return True
        return self.policy.send_evaluation and samples >= self.policy.min_samples_per_evaluation

    def _may_leave(self, samples: int) -> bool:
        """Return whether tables of counts over so many samples may leave at the end."""
        if self.policy is None or not self.own_data:
            return True
        return self.policy.send_suspects and samples >= self.policy.min_samples_per_update

    def release(self, kind: str, request: RoundRequest, content: RecordDict, session: MaskSession | None) -> RecordDict:
        """Return a message of sums as it leaves, masked where it is asked for, and log it.

        Args:
            kind: `train`, `evaluate`, `noise`, `sure`, `scores` or `report`.
            request: What it answers.
            content: The message.
            session: The sites with which it is masked; None to send it as it is.

        Raises:
            Refusal: If masks are asked for and there is no key; or are not, after they were.
        """
        facts = {"kind": kind, "round": request.index, "masked": session is not None, **describe_content(content)}
        vote = get_vote(content)
        if vote is not None:
            facts["objects"] = vote
        if session is not None:
            if self.masks is None:
                raise Refusal("The coordinator asks for masked sums, and this site has no key for masks.")
            masked = self.masks.mask(content, session, _purpose(kind, request))
            content = masked if vote is None else RecordDict({**masked, VOTE: content[VOTE]})
        self.log.write("sent", **facts)
        return content

    def unmask(self, content: RecordDict) -> RecordDict:
        """Return the shares that unmask a sum; see `SiteMasks.reveal`."""
        self.log.write("asked", kind="unmask")
        try:
            if self.masks is None:
                raise Refusal("The coordinator asks for masks, and this site has no key for masks.")
            policy = self.policy or SitePolicy()
            shares = self.masks.reveal(content, policy.min_sites_per_sum, policy.same_sites)
        except UserError as error:
            self.log.write("refused", kind="unmask", reason=str(error))
            raise
        unreadable = [client for client, text in get_shares(shares)[0].items() if not text]
        facts: dict[str, list[int]] = {"shares_that_cannot_be_read": unreadable} if unreadable else {}
        self.log.write("sent", kind="unmask", sites_in_the_sum=get_shares(content)[2], **facts)
        return shares

    @contextmanager
    def limits(self) -> Iterator[None]:
        """Keep what is done inside the block within what the policy allows: without it, nothing is downloaded."""
        with downloads_allowed(self.policy is None or self.policy.downloads):
            yield

    def sends_in_the_clear(self, request: RoundRequest) -> bool:
        """Return whether counts may leave with the last answer: with masks they went into a sum before."""
        if self.masks is not None and self.masks.in_use:
            return False
        wanted = self.policy is not None and self.own_data
        return not (wanted and wants_masks(self.policy or SitePolicy(), experiment_from_toml(request.settings)))

    def _check(self, kind: str, request: RoundRequest, session: MaskSession | None, question: bytes) -> None:
        if len(request.settings) > _MAX_SETTINGS:
            raise Refusal("The coordinator's settings are too long.")
        known = self.agreed.settings if self.agreed is not None else None
        if known is not None and known != request.settings:
            raise Refusal("The coordinator's settings differ from those that were agreed on.", "another --out here")
        if self.policy is not None:
            check_names(self.policy, _parse(request.settings))  # before anything is imported
        experiment, masked = experiment_from_toml(request.settings), session is not None
        if self.masks is not None and self.masks.in_use and kind in _SUMS and not masked:
            raise Refusal("The coordinator asks for sums without masks, after some with masks.")
        if self.policy is not None:
            check_settings(self.policy, experiment, self.own_data)
            if kind in _SUMS and self.own_data:
                check_sums(self.policy, experiment, len(session.peers) if session is not None else 0)
        first = 1 if kind == "train" else 0  # the model before the first round may be evaluated
        if not first <= request.index <= experiment.rounds:
            raise Refusal(f"The coordinator asks for round {request.index} of {experiment.rounds}.")
        if self.agreed is not None and known is None and kind == "finish":
            raise Refusal("The coordinator ends a run that was not agreed on.")
        if session is not None and self.masks is not None:
            self.masks.check(session, _purpose(kind, request))
        if self.agreed is not None and known is None and kind in _SUMS:
            agreement = Agreement(request.settings, experiment)
            if not self.consent(agreement, masked):
                raise Declined("This site declined to take part.")
            self.agreed.save(agreement)
            self.log.write("agreed", settings=request.settings, fingerprint=agreement.fingerprint, masked=masked)
        if self.answered is not None and kind != "describe":
            private = kind == "train" and experiment.privacy.noise > 0  # its guarantee is for one update a round
            self.answered.admit(_purpose(kind, request), question.hex(), 1 if private else MOST_MODELS)


def _purpose(kind: str, request: RoundRequest) -> str:
    """Return what a sum is: there is one of each round, and one of each kind at the end."""
    return kind if kind in (*AT_END, "finish") else f"{kind} {request.index}"


def _parse(settings: str) -> Settings:
    try:
        return tomllib.loads(settings)
    except (ValueError, RecursionError) as error:  # no TOML, a number too long, tables too deep
        raise Refusal("The coordinator's settings cannot be read.") from error


class Declined(Refusal):
    """The people at the site do not want to take part."""
