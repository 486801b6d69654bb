"""The site's gate, which checks and logs every request of the coordinator and all data that leaves the site."""

import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256

import torch
from flwr.app import RecordDict

from rofl.audit.held_out_noise import ScoreSums
from rofl.audit.noise_estimation import LabelNoise, PredictionSums, SureSums
from rofl.config.schema import experiment_from_toml
from rofl.core.held_out_fit import HeldOutSums
from rofl.core.settings import Settings
from rofl.data.downloads import downloads_allowed
from rofl.errors import UserError
from rofl.federation.event_log import EventLog
from rofl.federation.masking.mask_messages import get_shares
from rofl.federation.masking.peers import MaskSession
from rofl.federation.masking.site_masks import AT_END, SiteMasks
from rofl.federation.message_facts import describe_content
from rofl.federation.noise_records import get_noise, no_held_out
from rofl.federation.protocol import Refusal, RoundRequest
from rofl.federation.site_evaluation import VOTE, SiteEvaluation, get_vote
from rofl.federation.site_info import SiteInfo
from rofl.federation.site_memory import MOST_MODELS, Agreement, AgreementFile, AnsweredRequests
from rofl.federation.site_policy import SitePolicy, check_count, check_names, check_settings, check_sums, wants_masks
from rofl.federation.site_report import SiteReport

_MAX_SETTINGS = 2**20  # characters
_SUMS = ("train", "evaluate", *AT_END)  # kinds of requests that ask for sums over samples


def _agree(_: Agreement, __: bool) -> bool:
    return True


@dataclass
class SiteGate:
    """Admits requests that the policy and the agreement allow, and logs requests and outgoing data.

    The default gate has no policy; use it for public data only.

    Attributes:
        policy: The site's conditions; None admits all requests.
        own_data: Whether the samples are the site's own.
        masks: The site's key and memory for masks; None if it cannot mask its sums.
        log: The log of requests, refusals and outgoing data.
        agreed: The file of the agreed settings; None admits any settings.
        answered: The questions that were answered before; None answers any number of questions.
        consent: Called once with the proposed agreement and whether sums are masked; False declines.
        on_request: Called with the kind of each admitted request, and the request.
        on_message: Called with status messages for the user.
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
        """Admit a request, or refuse it; both are logged.

        Args:
            kind: `describe`, `train`, `evaluate`, `noise`, `sure`, `scores`, `report` or `finish`.
            request: The request.
            session: The session of masks that the request names; None if it asks for sums without masks.
            question: The hash of the request that `read_question` returns.

        Raises:
            Refusal: If the policy does not allow the request, its settings differ from the agreed ones, it was made
                with too many models before, or consent is declined.
            UserError: If the settings or the session of masks are invalid.
        """
        asked = {"kind": kind, "round": request.index, "masked": session is not None}
        self.log.write_throttled("asked", **asked, settings=sha256(request.settings.encode()).hexdigest()[:16])
        try:
            if request.settings or kind != "describe":
                self._check(kind, request, session, question)
        except UserError as error:
            self.log.write_throttled("refused", **asked, reason=str(error))
            raise
        self.on_request(kind, request)

    def check_samples(self, samples: int) -> None:
        """Refuse an update that would be computed from too few samples."""
        if self.policy is None or not self.own_data:
            return
        try:
            check_count(self.policy, samples)
        except Refusal as error:
            self.log.write_throttled("refused", kind="train", reason=str(error))
            raise

    def greeting(self, info: SiteInfo) -> SiteInfo:
        """Return the greeting with the site's key for masks, and log it."""
        if self.masks is not None:
            info = replace(info, mask_key=self.masks.public, mask_signature=self.masks.signature)
        self.log.write_throttled("sent", kind="describe", facts=info.fields())
        return info

    def evaluation(self, counts: SiteEvaluation) -> SiteEvaluation:
        """Return the counts of an evaluation if the policy allows them to leave; zeros otherwise."""
        if self.policy is not None and not self.policy.send_vote:
            counts = replace(counts, objects=None)
        fewest = min([counts.tested, *([] if counts.held_out is None else [counts.held_out.samples])])
        if self._sends_evaluation(fewest):
            return counts
        self.log.write_throttled("withheld", kind="evaluate", samples=fewest)
        return counts.without_counts()

    def report(self, counts: SiteReport) -> SiteReport:
        """Return the counts of suspects if the policy allows them to leave; zeros otherwise."""
        if self._may_leave(counts.samples):
            return counts
        self.log.write_throttled("withheld", kind="report")
        return counts.without_counts()

    def predictions(self, sums: PredictionSums) -> PredictionSums:
        """Return the first-pass sums of the noise estimate if the policy allows them to leave; zeros otherwise."""
        if self._may_leave(sums.samples):
            return sums
        self.log.write_throttled("withheld", kind="noise")
        return PredictionSums(torch.zeros_like(sums.counts), 0.0)

    def sure(self, sums: SureSums, held_out: HeldOutSums, samples: int) -> tuple[SureSums, HeldOutSums]:
        """Return the second-pass sums if the policy allows them to leave; zeros otherwise.

        Args:
            sums: The sums over training samples.
            held_out: The sums over held-out samples, which must also meet the policy's conditions for evaluations.
            samples: The number of training samples of the site.
        """
        if not self._may_leave(samples):
            self.log.write_throttled("withheld", kind="sure")
            return SureSums(0, 0), no_held_out()
        if held_out.samples and not self._sends_evaluation(held_out.samples):
            self.log.write_throttled("withheld", kind="sure", samples=held_out.samples)
            held_out = no_held_out()
        return sums, held_out

    def scores(self, sums: ScoreSums, samples: int) -> ScoreSums:
        """Return the third-pass sums if the policy allows them to leave; zeros otherwise.

        Args:
            sums: The sums.
            samples: The number of training samples of the site.
        """
        if self._may_leave(samples):
            return sums
        self.log.write_throttled("withheld", kind="scores")
        return ScoreSums(torch.zeros_like(sums.scores), 0)

    def noise(self, content: RecordDict, classes: int) -> tuple[LabelNoise | None, str]:
        """Return the label noise over all sites in a request, or why this site must estimate it alone.

        Args:
            content: The request.
            classes: The number of classes of the model.

        Returns:
            The noise and "", or None and the reason.
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
        """Return whether the policy allows counts over this number of held-out samples to leave."""
        if self.policy is None or not self.own_data:
            return True
        return self.policy.send_evaluation and samples >= self.policy.min_samples_per_evaluation

    def _may_leave(self, samples: int) -> bool:
        """Return whether the policy allows tables over this number of samples to leave at the end."""
        if self.policy is None or not self.own_data:
            return True
        return self.policy.send_suspects and samples >= self.policy.min_samples_per_update

    def release(self, kind: str, request: RoundRequest, content: RecordDict, session: MaskSession | None) -> RecordDict:
        """Mask a message of sums if the request asks for it, log it, and return it for sending.

        Args:
            kind: `train`, `evaluate`, `noise`, `sure`, `scores`, `report` or `finish`.
            request: The request that the message answers.
            content: The message.
            session: The sites with which the sums are masked; None to send them unmasked.

        Raises:
            Refusal: If masks are requested and the site has no key for masks.
            UserError: If `SiteMasks.mask` refuses the session.
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
        self.log.write_throttled("sent", **facts)
        return content

    def unmask(self, content: RecordDict) -> RecordDict:
        """Return the shares that unmask a sum, and log the request; see `SiteMasks.reveal`."""
        self.log.write_throttled("asked", kind="unmask")
        try:
            if self.masks is None:
                raise Refusal("The coordinator asks for masks, and this site has no key for masks.")
            policy = self.policy or SitePolicy()
            shares = self.masks.reveal(content, policy.min_sites_per_sum, policy.same_sites)
        except UserError as error:
            self.log.write_throttled("refused", kind="unmask", reason=str(error))
            raise
        unreadable = [client for client, text in get_shares(shares)[0].items() if not text]
        facts: dict[str, list[int]] = {"shares_that_cannot_be_read": unreadable} if unreadable else {}
        self.log.write_throttled("sent", kind="unmask", sites_in_the_sum=get_shares(content)[2], **facts)
        return shares

    @contextmanager
    def limits(self) -> Iterator[None]:
        """Forbid downloads inside the block, unless the policy allows them."""
        with downloads_allowed(self.policy is None or self.policy.downloads):
            yield

    def sends_in_the_clear(self, request: RoundRequest) -> bool:
        """Return whether the last answer may contain counts; with masks, a sum has contained them before."""
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
        first = 1 if kind == "train" else 0  # the initial model may be evaluated
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
            private = kind == "train" and experiment.privacy.noise > 0  # its guarantee covers one update per round
            self.answered.admit(_purpose(kind, request), question.hex(), 1 if private else MOST_MODELS)


def _purpose(kind: str, request: RoundRequest) -> str:
    """Return the purpose of a sum: its kind, with the round for sums of a round."""
    return kind if kind in (*AT_END, "finish") else f"{kind} {request.index}"


def _parse(settings: str) -> Settings:
    try:
        return tomllib.loads(settings)
    except (ValueError, RecursionError) as error:  # invalid TOML, or too deeply nested
        raise Refusal("The coordinator's settings cannot be read.") from error


class Declined(Refusal):
    """The user at the site declined to take part."""
