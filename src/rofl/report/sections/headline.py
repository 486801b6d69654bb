"""The top of the page: the main settings, a card with each method's accuracy, and the main figures of the first.

`group_runs` puts a method with centroids first, if there is one. The cards of the other methods state their difference
to the first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rofl.config.schema import Experiment
from rofl.report import formatting
from rofl.report.environment import Section, render
from rofl.report.finished_runs import FinishedRun, Group
from rofl.report.sections.comparison import group_figures, truth_notes
from rofl.training.records import LAST_ROUNDS


@dataclass(frozen=True)
class AccuracyCard:
    """A method's test accuracy."""

    label: str
    mean: str
    spread: str  # "± 1.2 %"; empty for one seed
    notes: list[str]


@dataclass(frozen=True)
class Tile:
    """One figure with an explanatory line."""

    name: str
    figure: str
    note: str


def page_title(runs: Sequence[FinishedRun]) -> str:
    """Return the name of the data set, with the noise ratio if all runs share one.

    Several data sets are listed one after the other. Without added noise, the title is the name alone. A coordinator
    does not know the names of the sites' data, so its page uses the name of the run.
    """
    names = _distinct(
        run.folder.path.resolve().name if run.experiment.data.at_sites else run.experiment.data.title for run in runs
    )
    ratios = {run.experiment.noise.expected_ratio for run in runs}
    if len(ratios) > 1 or any(run.experiment.noise.fully_noisy_class for run in runs):
        return f"{names} with wrong labels"
    ratio = ratios.pop()
    return f"{names} with {100 * ratio:.3g}\N{NO-BREAK SPACE}% wrong labels" if ratio else names


def run_facts(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return the main settings of the runs as text, by name; if runs differ, all values are listed."""
    experiments = [run.experiment for run in runs]
    seeds = sorted({one.seed for one in experiments})
    sites = _distinct(", ".join(run.summary.sites) for run in runs)
    per_round = _distinct(one.cohort for one in experiments)
    if all(one.data.client_name and one.data.is_user_data for one in experiments):  # the page of a site
        federation = {"Site": _distinct(one.data.client_name for one in experiments)}
    elif sites:
        federation = {"Sites": sites, "Sites per round": per_round}
    else:
        federation = {"Clients": _distinct(one.clients for one in experiments), "Clients per round": per_round}
    partition = {} if "Site" in federation else {"Partition": _distinct(_partition(one) for one in experiments)}
    return {
        **federation,
        "Rounds": _distinct(_rounds(run) for run in runs),
        "Noise": _distinct(_noise(one) for one in experiments),
        **partition,
        "Model": _distinct(one.model.name for one in experiments),
        "Seed" if len(seeds) == 1 else "Seeds": _distinct(seeds),
    }


def headline(groups: Sequence[Group]) -> Section:
    """Return the accuracy cards of all groups, and the tiles of the first."""
    first = groups[0]
    reference = _accuracy(first)
    cards = [_saved_model_card(groups) or _card(first, _averaged_rounds(first))]
    cards += [_card(group, _difference(_accuracy(group), reference, first.label)) for group in groups[1:]]
    return Section(render("headline.html.j2", cards=cards, tiles=_tiles(first)))


def _card(group: Group, note: str) -> AccuracyCard:
    """Return a group's card; `note` is the first line below the number, and a second line counts the seeds."""
    number = formatting.with_spread([run.summary.test_accuracy for run in group.runs], formatting.per_cent)
    mean, sign, spread = number.partition("±")
    seeds = [f"mean and standard deviation of {len(group.runs)} seeds"] if len(group.runs) > 1 else []
    return AccuracyCard(group.label, mean.strip(), sign + spread, [note, *seeds, *_saved_model(group)])


def _saved_model_card(groups: Sequence[Group]) -> AccuracyCard | None:
    """Return the card of a single run that saved its best model, with that model's accuracy; else None."""
    first = groups[0]
    summary = first.runs[0].summary
    if len(groups) > 1 or not _saved_model(first) or summary.model_accuracy is None:
        return None
    mean = formatting.with_spread([summary.test_accuracy], formatting.per_cent)
    notes = [
        f"{_measure(first)} of the saved model, that of round {summary.selected_round}, the best by held-out labels",
        f"{mean} is the mean of {_last_rounds(first)}",
    ]
    return AccuracyCard(first.label, formatting.per_cent(summary.model_accuracy), "", notes)


def _saved_model(group: Group) -> list[str]:
    """Return a line about the saved model, if it is not the model of the last round."""
    summary = group.runs[0].summary
    if len(group.runs) > 1 or summary.selected != "best" or summary.model_accuracy is None:
        return []
    figure = formatting.per_cent(summary.model_accuracy)
    return [f"{figure} by the saved model, of round {summary.selected_round}: the best by held-out labels"]


def _tiles(group: Group) -> list[Tile]:
    """Return the figures besides accuracy; those that need the true labels only if these are known."""
    figures = group_figures(group)
    samples = formatting.average([run.samples for run in group.runs], formatting.count)
    scored = all(run.expected_wrong is not None for run in group.runs)
    expected = {"Expected wrong": "labels: the sum of all scores"} if scored else {}
    notes = {
        "Suspects": f"of {samples} labels",
        **expected,
        **truth_notes(group),
        "Time": "for all rounds",
        "Sent up": "by clients, all rounds",
        "Sent down": "to clients, all rounds",
        "Centroids' share": "of all that was sent",
    }
    return [Tile(name, figures[name], note) for name, note in notes.items()]


def _accuracy(group: Group) -> float | None:
    """Return the mean accuracy over the seeds; None if a run has no accuracy."""
    values = [run.summary.test_accuracy for run in group.runs]
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _averaged_rounds(group: Group) -> str:
    """Describe the accuracy of a card: the mean of the last ten evaluated rounds, or of all if there are fewer."""
    several = all(len(run.curve) > 1 for run in group.runs)
    return _measure(group) + (f", mean of {_last_rounds(group)}" if several else "")


def _last_rounds(group: Group) -> str:
    """Return the evaluated rounds in the mean: all, or the last ten."""
    fewest = min(len(run.curve) for run in group.runs)
    return f"all {fewest} rounds" if fewest <= LAST_ROUNDS else f"the last {LAST_ROUNDS} rounds"


def _measure(group: Group) -> str:
    """Return the name of the measure; for user data it says that labels may be wrong."""
    return "accuracy on held-out labels as given" if group.runs[0].experiment.data.is_user_data else "test accuracy"


def _difference(accuracy: float | None, reference: float | None, name: str) -> str:
    """Return the difference of an accuracy to the first method's, in percentage points, as text.

    Args:
        accuracy: the accuracy of this method, in per cent; None if unknown.
        reference: the accuracy of the first method, in per cent; None if unknown.
        name: the name of the first method.
    """
    if accuracy is None or reference is None:
        return "test accuracy not known"
    points = abs(accuracy - reference)
    side = "below" if accuracy < reference else "above"
    return f"{points:.1f} points {side} {name}" if points >= 0.05 else f"level with {name}"


def _rounds(run: FinishedRun) -> str:
    """Return the number of rounds; for a run that stopped early, both the actual and the planned number."""
    done, planned = run.summary.rounds_run, run.experiment.rounds
    return f"{done} of {planned}" if run.summary.stopped else str(planned)


def _noise(experiment: Experiment) -> str:
    """Return the noise that was added to the labels; the noise of user data is unknown."""
    came = experiment.data.is_user_data and not experiment.noise.expected_ratio
    return "not known" if came else experiment.noise.text


def _partition(experiment: Experiment) -> str:
    """Return how samples were assigned to clients; sites and user data with named clients keep their own."""
    data = experiment.data
    return (
        "by client, as in the data" if data.at_sites or (data.path and data.partition == "natural") else data.partition
    )


def _distinct(values: Iterable[object]) -> str:
    """Return the distinct values in their order, separated by commas."""
    return ", ".join(dict.fromkeys(str(value) for value in values))
