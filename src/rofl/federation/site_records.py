"""What a site tells the coordinator about itself: a greeting, test counts, and counts of suspects at the end.

Each record is written and read here only. What arrives is checked for types, ranges and lengths; a record that fails
raises an error with one sentence, and the coordinator goes on without that site.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from flwr.app import ConfigRecord, RecordDict

from rofl.audit import transition
from rofl.audit.result import NoiseEstimate
from rofl.data.user.shared_columns import parse_columns
from rofl.errors import UserError
from rofl.federation.protocol import PROTOCOL, check_protocol, get_sums, is_int, put_sums
from rofl.federation.tensor_records import get_tensors, put_tensors
from rofl.training.held_out import HeldOut

_GREETING = "site"  # the record's name, as in 0.1
VOTE = "vote"  # the record of a site's opinion of a model, which is never masked
_MAX_NAME = 100  # characters
_MAX_CLASSES, _MAX_CLASS_NAME = 10_000, 255
_MAX_SIDE = 1024  # pixels
_MASK_KEY, _MAX_SIGNATURE = 32, 200  # bytes
_MAX_COUNT = 2**53  # samples; larger numbers are not exact as float64, which is how sums travel


@dataclass(frozen=True)
class SiteInfo:
    """The greeting: who a site is, and what data it has.

    Attributes:
        client: Its number among all sites, counted from 0.
        name: Its name, for people.
        samples: How many samples it trains with.
        side: Pixels of its square images; None where the settings name the data set.
        channels: 1 for grey images, 3 for colours; None where the settings name the data set.
        classes: The names of its classes; empty where the settings name the data set.
        mask_key: Its public key for masks (`rofl.federation.masking`); empty where it cannot mask.
        mask_signature: Its signature of that key; empty without credentials.
        columns: What it says of the columns of its table, or of its texts: an encoder as JSON; "" for images.
    """

    client: int
    name: str
    samples: int
    side: int | None = None
    channels: int | None = None
    classes: tuple[str, ...] = ()
    mask_key: bytes = b""
    mask_signature: bytes = b""
    columns: str = ""

    def fields(self) -> dict[str, int | str | list[str]]:
        """Return what travels, by name; `rofl join --dry-run` lists it."""
        fields: dict[str, int | str | list[str]] = {
            "client": self.client,
            "name": self.name,
            "samples": self.samples,
            "protocol": PROTOCOL,
        }
        if self.side is not None and self.channels is not None:
            fields |= {"side": self.side, "channels": self.channels, "classes": list(self.classes)}
        if self.columns:
            fields |= {"columns": self.columns, "classes": list(self.classes)}
        if self.mask_key:
            fields |= {"mask key": self.mask_key.hex(), "mask signature": self.mask_signature.hex()}
        return fields

    def encode(self) -> RecordDict:
        """Return the greeting as a message."""
        return RecordDict({_GREETING: ConfigRecord(dict(self.fields()))})

    @classmethod
    def decode(cls, content: RecordDict, known_name: str = "") -> "SiteInfo":
        """Return the greeting of a message.

        Args:
            content: The message.
            known_name: The site's name by its key; "" to believe what it says.

        Raises:
            ProtocolError: If the site uses another version of the protocol.
            ValueError: If a field is missing, or has a wrong type, range or length.
        """
        record = content.get(_GREETING)
        if not isinstance(record, ConfigRecord):
            raise ValueError("A site's greeting has no record 'site'.")
        name = known_name or record.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
            raise ValueError(f"A site's greeting has no name of 1 to {_MAX_NAME} printable characters.")
        check_protocol(record.get("protocol"), name, "the coordinator")
        client, samples = record.get("client"), record.get("samples")
        if not is_int(client) or client < 0:
            raise ValueError(f"{name} sends no number of its own, counted from 0.")
        if not is_int(samples) or not 0 <= samples < _MAX_COUNT:
            raise ValueError(f"{name} sends no number of samples.")
        if samples == 0:
            raise ValueError(f"{name} has no sample to train with.")
        key, signature = _hex(record, "mask key", _MASK_KEY), _hex(record, "mask signature", _MAX_SIGNATURE)
        if key is None or signature is None or len(key) not in (0, _MASK_KEY):
            raise ValueError(f"{name} sends no key for masks that can be used.")
        if not {"side", "channels", "classes", "columns"} & set(record):
            return cls(client, name, samples, mask_key=key, mask_signature=signature)
        columns, classes = record.get("columns"), record.get("classes")
        if columns is not None:
            columns, names = _columns(name, columns), _class_names(name, classes)
            return cls(client, name, samples, None, None, names, key, signature, columns)
        side, channels = record.get("side"), record.get("channels")
        if not is_int(side) or not 1 <= side <= _MAX_SIDE or not is_int(channels) or channels not in (1, 3):
            raise ValueError(f"{name} sends no image size that can be used.")
        return cls(client, name, samples, side, channels, _class_names(name, classes), key, signature)


@dataclass(frozen=True)
class SiteEvaluation:
    """How a model does on a site's held-out samples, as counts.

    Attributes:
        right: How many test samples are classified as they are labelled.
        tested: How many test samples there are.
        held_out: Predictions and labels by class, by which rounds are compared; None where the site sends none.
        objects: Whether the model is worse by far than the one that this site trained itself in the same round; None
            where it cannot or may not tell. It is no part of a sum: a site has one vote, also under masks.
    """

    right: int
    tested: int
    held_out: HeldOut | None = None
    objects: bool | None = None

    def is_plausible(self, samples: int) -> bool:
        """Return whether there are no more held-out samples than the declared ones; counts by class are judged by."""
        return self.held_out is None or self.held_out.samples <= samples

    def without_counts(self) -> "SiteEvaluation":
        """Return zeros in place of all counts, for a site that does not send them."""
        if self.held_out is None:
            return SiteEvaluation(0, 0)
        none = [0] * len(self.held_out.predicted)
        return SiteEvaluation(0, 0, HeldOut(predicted=none, labelled=none, agreed=0))

    def encode(self) -> RecordDict:
        """Return the counts as a message."""
        sums = {"right": self.right, "tested": self.tested}
        content = RecordDict() if self.objects is None else RecordDict({VOTE: ConfigRecord({"objects": self.objects})})
        if self.held_out is None or self.held_out.agreed is None:
            return put_sums(content, sums)
        tables = {"predicted": self.held_out.predicted, "labelled": self.held_out.labelled}
        content = put_sums(content, {**sums, "agreed": self.held_out.agreed})
        return put_tensors(content, tables={name: torch.tensor(counts) for name, counts in tables.items()})

    @classmethod
    def decode(cls, content: RecordDict, classes: int | None = None) -> "SiteEvaluation":
        """Return the counts of a message; a ValueError says what is wrong with them.

        Args:
            content: The message.
            classes: How many classes the model has; any number where None.
        """
        sums, objects = get_sums(content), get_vote(content)
        right, tested = decode_count(sums, "right"), decode_count(sums, "tested")
        if right > tested:
            raise ValueError(f"it counts {right} right answers of {tested}")
        if "agreed" not in sums:
            return cls(right, tested, objects=objects)
        (tables,) = get_tensors(content, "tables")
        predicted, labelled = (_class_counts(tables.get(name), classes) for name in ("predicted", "labelled"))
        agreed = decode_count(sums, "agreed")
        if not sum(predicted) == sum(labelled) >= agreed or len(predicted) != len(labelled):
            raise ValueError("its counts by class do not fit together")
        return cls(right, tested, HeldOut(predicted=predicted, labelled=labelled, agreed=agreed), objects)


@dataclass(frozen=True)
class SiteReport:
    """The farewell: what a site found in its own labels after the last round, as counts.

    Attributes:
        samples: How many samples it has.
        flagged: How many of their labels are suspected to be wrong.
        transition: Counts by (suggested class, given class), (K, K) int64; they add up to `samples`.
    """

    samples: int
    flagged: int
    transition: torch.Tensor

    def encode(self) -> RecordDict:
        """Return the counts as a message."""
        content = put_sums(RecordDict(), {"samples": self.samples, "flagged": self.flagged})
        return put_tensors(content, tables={"transition": self.transition})

    @classmethod
    def decode(cls, content: RecordDict, classes: int) -> "SiteReport":
        """Return the counts of a message for a model of K = `classes`; a ValueError says what is wrong with them."""
        sums = get_sums(content)
        samples, flagged = decode_count(sums, "samples"), decode_count(sums, "flagged")
        if flagged > samples:
            raise ValueError(f"it suspects {flagged} of {samples} labels")
        return cls(samples, flagged, decode_table(content, "transition", classes, samples))


@dataclass(frozen=True)
class SiteReports:
    """What the sites found in their labels.

    Attributes:
        counts: A report of each site, or one over all of them where sums were masked; none where none could be had.
        finished: The sites that came to the end.
        by_client: The reports of single sites; empty where sums were masked.
    """

    counts: list[SiteReport]
    finished: frozenset[int]
    by_client: Mapping[int, SiteReport] = field(default_factory=dict)


def get_vote(content: RecordDict) -> bool | None:
    """Return whether a site objects to a model, as its answer says in the clear; None where it does not say."""
    record = content.get(VOTE)
    objects = record.get("objects") if isinstance(record, ConfigRecord) else None
    return objects if isinstance(objects, bool) else None


def pooled_accuracy(evaluations: Iterable[SiteEvaluation]) -> float | None:
    """Return the accuracy on all sites' held-out samples, in per cent; None where there is no sample.

    >>> pooled_accuracy([SiteEvaluation(1, 2), SiteEvaluation(8, 8)])
    90.0
    """
    counts = list(evaluations)
    tested = sum(each.tested for each in counts)
    return 100 * sum(each.right for each in counts) / tested if tested else None


def pooled_counts(evaluations: Iterable[SiteEvaluation]) -> HeldOut | None:
    """Return the sums of all sites' counts by class; None where no site sends any."""
    counts = [each.held_out for each in evaluations if each.held_out is not None]
    if not counts:
        return None
    return HeldOut(
        predicted=[sum(column) for column in zip(*(each.predicted for each in counts), strict=True)],
        labelled=[sum(column) for column in zip(*(each.labelled for each in counts), strict=True)],
        agreed=sum(each.agreed or 0 for each in counts),
    )


def count_suggestions(reports: Iterable[SiteReport]) -> HeldOut:
    """Return how often each class is suggested and given, over all sites, and how often both are the same."""
    table = torch.stack([report.transition for report in reports]).sum(dim=0)  # (K, K): suggested, given
    suggested, given = table.sum(dim=1).tolist(), table.sum(dim=0).tolist()
    return HeldOut(predicted=suggested, labelled=given, agreed=int(table.diagonal().sum()))


def _class_names(site: str, classes: object) -> tuple[str, ...]:
    """Return the names of a site's classes; a ValueError says what is wrong with them."""
    if not isinstance(classes, list) or not 0 < len(classes) <= _MAX_CLASSES:
        raise ValueError(f"{site} sends no list of 1 to {_MAX_CLASSES} classes.")
    names = tuple(each for each in classes if isinstance(each, str) and _is_class_name(each))
    if len(names) != len(classes) or len(set(names)) != len(names):
        raise ValueError(f"{site} sends a class that has no name of its own.")
    return names


def _columns(site: str, text: object) -> str:
    """Return what a site says of its columns; a ValueError says what is wrong with it."""
    try:
        if isinstance(text, str) and parse_columns(text):
            return text
    except UserError as error:
        raise ValueError(f"{site} sends columns that cannot be used: {error.sentence}") from error
    raise ValueError(f"{site} sends columns that cannot be used.")


def _is_class_name(name: str) -> bool:
    return 0 < len(name) <= _MAX_CLASS_NAME and name.isprintable()


def _class_counts(table: torch.Tensor | None, classes: int | None) -> list[int]:
    if table is None or table.dtype != torch.int64 or table.dim() != 1 or len(table) != (classes or len(table)):
        raise ValueError("it has no counts by class")
    if bool((table < 0).any()) or bool((table >= _MAX_COUNT).any()):
        raise ValueError("its counts by class cannot be counted")
    return [int(count) for count in table.tolist()]


def _hex(record: ConfigRecord, name: str, most: int) -> bytes | None:
    """Return bytes that a record has as hexadecimal text: b"" where it has none, None where they cannot be used."""
    text = record.get(name, "")
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and len(found) <= most else None


def decode_count(sums: Mapping[str, float], name: str) -> int:
    """Return a count of samples among the numbers of a message; a ValueError says that it is none."""
    value = sums.get(name, -1.0)
    if not math.isfinite(value) or not value.is_integer() or not 0 <= value < _MAX_COUNT:
        raise ValueError(f"its {name} cannot be counted")
    return int(value)


def decode_table(content: RecordDict, name: str, classes: int, samples: int) -> torch.Tensor:
    """Return a table of counts (K, K) of a message.

    Args:
        content: The message.
        name: The table's name.
        classes: K.
        samples: What the counts must add up to.

    Raises:
        ValueError: If there is none, or it counts something else.
    """
    (tables,) = get_tensors(content, "tables")
    table = tables.get(name)
    if table is None or table.dtype != torch.int64 or table.shape != (classes, classes):
        raise ValueError(f"it has no table of counts of {classes} classes")
    if bool((table < 0).any()) or float(table.double().sum()) != samples:  # as float64 it cannot wrap around
        raise ValueError(f"its table does not count {samples} samples")
    return table


def estimate_noise(sites: Mapping[int, SiteInfo], reports: SiteReports) -> NoiseEstimate:
    """Return the label noise as the sites' audits see it, from their counts.

    Args:
        sites: All sites, by their numbers.
        reports: What they found.

    Returns:
        The share of suspected labels, of all sites and of each that is known; and Q[i][j], the estimated
        probability that a sample of class i is labelled j.
    """
    flagged = sum(report.flagged for report in reports.counts)
    samples = sum(report.samples for report in reports.counts)
    known = reports.by_client.items()
    clients = {sites[client].name: round(each.flagged / max(each.samples, 1), 6) for client, each in known}
    tables = [report.transition for report in reports.counts]
    matrix = transition(torch.stack(tables).sum(dim=0)).tolist() if tables else []
    return NoiseEstimate(
        ratio=flagged / samples if samples else 0.0,
        clients=clients,
        transition=[[round(share, 6) for share in row] for row in matrix],
    )
