"""Data of a user's own on the terminal: a bar while images are decoded, what was chosen, what was found."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from rofl.config.presets.user_data import choose_for_data
from rofl.config.schema import Experiment
from rofl.data import Dataset, user
from rofl.data.user.names import list_some, plural

_SHOWN = 20  # clients, classes or files that are listed; --json has all


def choose(path: Path, changes: Mapping[str, Any], base: Mapping[str, Any], console: Console) -> Experiment:
    """The experiment for a path, with lines on the console that say what was found and chosen."""
    with decoding(console) as progress:
        chosen, images = choose_for_data(path, changes, base, progress)
    for line in describe(chosen, images):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return chosen


def describe(chosen: Experiment, images: Dataset) -> list[str]:
    """What was found, what was chosen, and what to know about it."""
    channels, height, width = images.shape
    colours = "grey" if channels == 1 else "RGB"
    form = f"{channels} features" if images.is_table else f"{height} x {width} pixels, {colours}"
    kept = chosen.data.partition == "natural" and images.clients
    clients = f"{len(images.clients)} clients" if kept else f"shared out over {chosen.clients} clients"
    lines = [
        f"{chosen.data.title}: {clients}, {len(images.classes)} classes, {len(images.train_labels)} samples to train "
        f"with and {len(images.test_labels)} to test with, {form}",
        f"chosen: model {chosen.model.name} at width {chosen.model.width:g}, batches of {chosen.method['batch']}, "
        f"{chosen.cohort} of {chosen.clients} clients a round, {plural(chosen.rounds, 'round')}; --set changes it",
    ]
    return [*lines, f"note: {images.note}"] if images.note else lines


def decode(source: user.UserSource, console: Console) -> None:
    """Decode the images where that was not done before."""
    with decoding(console) as progress:
        user.load_user_data(source, progress)


def check(path: Path, test: Path | None, console: Console) -> dict[str, Any]:
    """The findings of `rofl data check`."""
    with decoding(console) as progress:
        return user.check_user_data(user.UserSource(str(path), str(test or "")), progress)


@contextmanager
def decoding(console: Console) -> Iterator[user.Progress]:
    """A bar that appears with the first image; one line where there is no terminal."""
    with Bar(console=console, disable=not console.is_terminal, transient=True) as bar:

        def progress(done: int, total: int) -> None:
            if not bar.tasks:
                bar.add_task("decoding images", total=total)
                if not console.is_terminal:
                    console.print(f"decoding {total} images", highlight=False)
            bar.update(bar.tasks[0].id, completed=done)

        yield progress


def check_table(found: Mapping[str, Any], title: str) -> Table:
    """The findings, for people."""
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    samples = found["samples"]
    rows = {
        "samples": f"{samples['train']} to train with, {samples['test']} to test with ({found['test_part']})",
        "clients": _counts(found["clients"]) or "none named; they are shared out",
        "classes": _counts(found["classes"]),
        "test classes": _counts(found["test_classes"]),
    }
    if found["kind"] == "table":
        rows["features"] = str(found["columns"])
    else:
        side = found["shorter_side"]
        rows["sizes"] = _counts(found["sizes"])
        rows["shorter side"] = f"{side['smallest']} to {side['largest']} pixels, median {side['median']}"
        rows["modes"] = _counts(found["modes"])
        becomes = found["becomes"]
        rows["becomes"] = f"{becomes['side']} x {becomes['side']}, {plural(becomes['channels'], 'channel')}"
    for name, groups in found["duplicates"].items():
        rows[f"duplicates {name.replace('_', ' ')}"] = _groups(groups)
    rows["unreadable"] = list_some([f"{name} ({why})" for name, why in found["unreadable"].items()], _SHOWN) or "none"
    rows["classes of one client only"] = list_some(found["classes_of_one_client"], _SHOWN) or "none"
    rows["clients with few samples"] = list_some(found["clients_with_few_samples"], _SHOWN) or "none"
    rows["notes"] = " ".join(found["notes"]) or "none"
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def _counts(counts: Mapping[str, int]) -> str:
    return list_some([f"{name} ({count})" for name, count in counts.items()], _SHOWN)


def _groups(groups: Sequence[Sequence[str]]) -> str:
    return list_some([" = ".join(group) for group in groups], 5) or "none"
