"""Data for the terminal and as JSON: a split of `rofl split`, and the findings of `rofl data check`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from rich.markup import escape
from rich.table import Table

from rofl.cli.tables import facts_table
from rofl.data.client_dataset import client_sizes
from rofl.data.federated import FederatedDataset
from rofl.data.user import DataCheck
from rofl.data.user.names import list_some, plural

_ALIKE = 4  # names of equal samples; --json has all
_LISTED = 20  # clients, classes or files; --json has all


@dataclass(frozen=True)
class SplitFacts:
    """A split as `rofl split --json` prints it: its sizes, and the share of wrong labels in all and at each client."""

    dataset: str
    noise: str
    seed: int
    clients: int
    samples: int
    smallest_client: int
    largest_client: int
    classes: int
    truth_known: bool
    wrong: float
    client_wrong: list[float]


def split_facts(federated: FederatedDataset) -> SplitFacts:
    """Return the sizes of a split and its shares of wrong labels."""
    sizes = torch.as_tensor(client_sizes(federated.parts))
    return SplitFacts(
        dataset=federated.images.name,
        noise=federated.spec.noise.text,
        seed=federated.spec.seed,
        clients=len(sizes),
        samples=len(federated.labels),
        smallest_client=int(sizes.min()),
        largest_client=int(sizes.max()),
        classes=len(federated.images.classes),
        truth_known=federated.images.truth_known,
        wrong=federated.noise_ratio,
        client_wrong=federated.client_noise_rates,
    )


def split_table(federated: FederatedDataset) -> Table:
    """Return the facts of a split as a table."""
    facts = split_facts(federated)
    shares = [100 * share for share in facts.client_wrong]
    wrong = "wrong labels" if facts.truth_known else "labels made wrong"  # others may have been wrong before
    rows = {
        "clients": f"{facts.clients}, with {facts.smallest_client} to {facts.largest_client} samples",
        "samples": str(facts.samples),
        "classes": str(facts.classes),
        wrong: f"{100 * facts.wrong:.1f} %",
        "per client": f"{min(shares):.1f} to {max(shares):.1f} %",
    }
    return facts_table(f"{facts.dataset}, {facts.noise}", rows)


def check_facts(check: DataCheck) -> dict[str, object]:
    """Return the findings about usable data for JSON, without fields that do not apply."""
    return {"usable": True, **{name: value for name, value in asdict(check).items() if value is not None}}


def check_table(check: DataCheck, title: str) -> Table:
    """Return the findings about usable data as a table."""
    rows = {
        "samples": f"{check.samples['train']} to train with, {check.samples['test']} to test with ({check.test_part})",
        "clients": _count_text(check.clients) or "none named; they are shared out",
        "classes": _count_text(check.classes),
        "test classes": _count_text(check.test_classes),
    }
    if check.columns is not None:
        rows["words" if check.kind == "texts" else "features"] = str(check.columns)
    if check.sizes is not None and check.shorter_side is not None:
        side = check.shorter_side
        rows["sizes"] = _count_text(check.sizes)
        rows["shorter side"] = f"{side['smallest']} to {side['largest']} pixels, median {side['median']}"
    if check.modes is not None and check.becomes is not None:
        pixels, channels = check.becomes["side"], check.becomes["channels"]
        rows["modes"] = _count_text(check.modes)
        rows["becomes"] = f"{pixels} x {pixels}, {plural(channels, 'channel')}"
    for name, groups in check.duplicates.items():
        rows[f"duplicates {name.replace('_', ' ')}"] = _group_text(groups)
    unreadable = [f"{name} ({problem})" for name, problem in check.unreadable.items()]
    rows["unreadable"] = list_some(unreadable, _LISTED) or "none"
    rows["classes of one client only"] = list_some(check.classes_of_one_client, _LISTED) or "none"
    rows["clients with few samples"] = list_some(check.clients_with_few_samples, _LISTED) or "none"
    rows["notes"] = " ".join(check.notes) or "none"
    # escaped, since names of files, clients and classes may look like markup
    return facts_table(escape(title), {escape(name): escape(text) for name, text in rows.items()})


def _count_text(counts: Mapping[str, int]) -> str:
    return list_some([f"{name} ({count})" for name, count in counts.items()], _LISTED)


def _group_text(groups: Sequence[Sequence[str]]) -> str:
    """Return the first groups of equal samples, and the first few samples of each; a group may have thousands."""
    texts = [
        " = ".join(group[:_ALIKE]) + (f" = {len(group) - _ALIKE} more" * (len(group) > _ALIKE)) for group in groups
    ]
    return list_some(texts, 5) or "none"
