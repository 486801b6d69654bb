"""Commands that train: run, resume, compare, demo."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.columns import Columns

from rofl import presets
from rofl.cli.app import (
    Data,
    DataDir,
    Dp,
    Json,
    Labels,
    Log,
    MethodName,
    Out,
    Seed,
    Sets,
    Test,
    What,
    Workers,
    app,
    result,
    talk,
)
from rofl.cli.choose import choose, decode_own
from rofl.cli.following import check_log, followed
from rofl.cli.progress import Watch
from rofl.cli.tables import comparison, comparison_table, summary_table
from rofl.config import Experiment
from rofl.errors import UserError, unknown
from rofl.experiment import Run, fresh_folder, resume, run
from rofl.methods import METHODS
from rofl.run_folder import RunFolder


@app.command("run", epilog="Example: rofl run digits --set noise.ratio=0.4 --method plain --seed 1")
def run_command(
    what: What = "",
    sets: Sets = None,
    method: MethodName = None,
    seed: Seed = None,
    data: Data = None,
    test: Test = None,
    labels: Labels = None,
    dp: Dp = None,
    out: Out = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Train once, and write a run folder."""
    check_log(log)
    chosen = choose(what, sets, method, seed, data, test, labels, dp)
    folder = out or fresh_folder(chosen)
    with Watch(talk) as watch, followed(watch, chosen, folder, log) as listener:
        done = run(chosen, folder, workers=workers, data_dir=data_dir, listener=listener)
    write_page([done], done.folder, data_dir)
    show(done, as_json)


@app.command("resume", epilog="Example: rofl resume runs/digits-rofl-1")
def resume_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run that was interrupted")],
    workers: Workers = None,
    data_dir: DataDir = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Go on with an interrupted run; it ends as if nothing had happened."""
    chosen = RunFolder(folder).read_experiment()
    check_log(log)
    if not RunFolder(folder).is_finished():  # then it needs its data no more
        decode_own(chosen)
    with Watch(talk) as watch, followed(watch, chosen, folder, log) as listener:
        done = resume(folder, workers=workers, data_dir=data_dir, listener=listener)
    write_page([done], done.folder, data_dir)
    show(done, as_json)


@app.command(epilog="Example: rofl compare digits --methods plain,rofl --seeds 3 --set noise.ratio=0.6")
def compare(
    what: What = "",
    methods: Annotated[str, typer.Option(help="names, with commas between")] = "plain,rofl",
    seeds: Annotated[int, typer.Option(min=1, help="seeds 0, 1, ... of this many runs each")] = 3,
    sets: Sets = None,
    data: Data = None,
    test: Test = None,
    labels: Labels = None,
    out: Out = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Several methods and seeds on the same scenes, in one table; finished runs in the folder are kept."""
    names = [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
    check_log(log)
    plan = [
        choose(what, sets, name, seed, data, test, labels, tell=(seed, name) == (0, names[0]))
        for seed in range(seeds)
        for name in names
    ]
    folder = out or Path("runs") / f"compare-{plan[0].name}"
    with Watch(talk) as watch:
        runs = run_all(plan, folder, watch, workers, data_dir, log)
    page = write_page(runs, folder, data_dir)
    if as_json:
        result.print_json(json.dumps({"folder": str(folder), "methods": comparison(runs)}))
    else:
        result.print(comparison_table(runs))
        talk.print(f"The page: {page}", markup=False, highlight=False)


@app.command(epilog="Example: rofl demo")
def demo(out: Out = Path("runs/demo"), workers: Workers = None, as_json: Json = False) -> None:
    """A first look: 20 clients, 40 % of the labels wrong, plain FedAvg against rofl."""
    from rofl.cli.demo import chart_of, suspect_cards

    assert out is not None
    talk.print("Handwritten digits at 20 clients; 40 % of the labels are wrong. Plain FedAvg against rofl.")
    runs = []
    with Watch(talk) as watch:
        for name in ("plain", "rofl"):
            chosen = presets.preset("digits", method=name, noise__ratio=0.4)
            watch.begin(chosen)
            runs.append(run(chosen, out / name, workers=workers, overwrite=True, listener=watch))
    page = write_page(runs, out, None)
    if as_json:
        result.print_json(json.dumps({"folder": str(out), "methods": comparison(runs)}))
        return
    result.print(chart_of(runs, width=min(result.width, 100)), markup=False, highlight=False)
    result.print(comparison_table(runs))
    result.print("The ten labels that look most wrong (given -> suggested):")
    result.print(Columns(suspect_cards(runs[-1], 10), padding=(0, 2)), highlight=False)
    talk.print(f"Each client's own list: {out / 'rofl' / 'suspects'}", markup=False, highlight=False)
    talk.print(f"The page: {page}", markup=False, highlight=False)


def run_all(
    plan: list[Experiment],
    folder: Path,
    watch: Watch,
    workers: int | None,
    data_dir: Path | None,
    log: list[str] | None,
) -> list[Run]:
    """Run what is not there yet; go on with what is."""
    runs = []
    for chosen in plan:
        place = RunFolder(folder / f"{chosen.method['name']}-s{chosen.seed}")
        if place.exists() and place.read_experiment() != chosen:
            raise UserError(f"{place.path} holds a run with other settings.", "another --out")
        with followed(watch, chosen, place.path, log) as listener:
            if place.exists():
                runs.append(resume(place.path, workers=workers, data_dir=data_dir, listener=listener))
            else:
                runs.append(run(chosen, place.path, workers=workers, data_dir=data_dir, listener=listener))
    return runs


def write_page(runs: list[Run], folder: Path, data_dir: Path | None) -> Path:
    """report.html of these runs."""
    from rofl import report

    return report.write([run.folder for run in runs], folder / "report.html", data_dir)


def show(done: Run, as_json: bool) -> None:
    """The outcome of a run, on stdout."""
    if as_json:
        result.print_json(json.dumps({**done.summary, "folder": str(done.folder)}))
    else:
        result.print(summary_table(done))
