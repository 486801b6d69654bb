"""The commands of `rofl`."""

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.columns import Columns
from rich.console import Console
from rich.table import Table

from rofl import presets
from rofl.cli.progress import Watch
from rofl.cli.tables import comparison, comparison_table, summary_table
from rofl.config import Experiment, experiment, parse_change, read_toml, with_changes
from rofl.data import DATASETS
from rofl.errors import UserError, unknown
from rofl.experiment import Interrupted, Run, resume, run
from rofl.methods import METHODS
from rofl.reproduce import Scale, make_plan
from rofl.run_folder import RunFolder

app = typer.Typer(
    help="Federated learning when labels are wrong.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Data of your own.", no_args_is_help=True)
app.add_typer(data_app, name="data")
talk = Console(stderr=True)
result = Console()

What = Annotated[str, typer.Argument(metavar="[PRESET|FILE.toml]", help="a preset's name, or a file of settings")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="change a setting; may be given again")
]
MethodName = Annotated[str | None, typer.Option("--method", help="short for --set method.name=...")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="short for --set seed=...")]
Out = Annotated[Path | None, typer.Option("--out", help="the folder to write; a new one in runs/ where absent")]
Workers = Annotated[int | None, typer.Option("--workers", min=0, help="client processes; one per core where absent")]
Data = Annotated[Path | None, typer.Option("--data", metavar="PATH", help="data of your own; docs/own-data.md")]
Test = Annotated[Path | None, typer.Option("--test", metavar="PATH", help="its test part; else in PATH or split off")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="where data sets lie; else $ROFL_DATA")]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


def main() -> None:
    """Run the command line; a user's mistake ends in one sentence and exit code 2."""
    try:
        app()
    except UserError as error:
        talk.print(f"error: {error}", style="red", markup=False, highlight=False)
        sys.exit(2)
    except Interrupted as stop:
        talk.print(f"Stopped after round {stop.index}. Go on with: rofl resume {stop.folder}", markup=False)
        sys.exit(130)
    except KeyboardInterrupt:
        talk.print("Stopped.")
        sys.exit(130)


@app.callback(invoke_without_command=True)
def _first_words(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
) -> None:
    """Federated learning when labels are wrong."""
    if version:
        result.print(metadata.version("rofl"), highlight=False)
    elif context.invoked_subcommand is None:
        result.print("rofl trains one model on data of many owners, whose labels may be wrong, and finds those labels.")
        result.print("A first look, about a minute:  [bold]rofl demo[/]\nAll commands:  [bold]rofl --help[/]")


@app.command("run", epilog="Example: rofl run digits --set noise.ratio=0.4 --method plain --seed 1")
def run_command(
    what: What = "",
    sets: Sets = None,
    method: MethodName = None,
    seed: Seed = None,
    data: Data = None,
    test: Test = None,
    out: Out = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Train once, and write a run folder."""
    chosen = choose(what, sets, method, seed, data, test)
    with Watch(talk) as watch:
        watch.begin(chosen)
        done = run(chosen, out, workers=workers, data_dir=data_dir, listener=watch)
    write_page([done], done.folder, data_dir)
    show(done, as_json)


@app.command("resume", epilog="Example: rofl resume runs/digits-rofl-1")
def resume_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run that was interrupted")],
    workers: Workers = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Go on with an interrupted run; it ends as if nothing had happened."""
    chosen = RunFolder(folder).read_experiment()
    if not (folder / "summary.json").is_file():  # a finished run needs its data no more
        decode_own(chosen)
    with Watch(talk) as watch:
        watch.begin(chosen)
        done = resume(folder, workers=workers, data_dir=data_dir, listener=watch)
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
    out: Out = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Several methods and seeds on the same scenes, in one table; finished runs in the folder are kept."""
    names = [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
    plan = [
        choose(what, sets, name, seed, data, test, tell=(seed, name) == (0, names[0]))
        for seed in range(seeds)
        for name in names
    ]
    folder = out or Path("runs") / f"compare-{plan[0].name}"
    with Watch(talk) as watch:
        runs = run_all(plan, folder, watch, workers, data_dir)
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


@app.command("scene", epilog="Example: rofl scene digits --set noise.spread=0.2 --seed 1 --out scene.safetensors")
def scene_command(
    what: What = "digits",
    sets: Sets = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option("--out", help="the file to write; none where absent")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Draw wrong labels and clients once, and keep them for several runs with the same settings."""
    from rofl.cli.scene import describe, scene_table
    from rofl.scene import prepare

    scene = prepare(choose(what, sets, None, seed), data_dir)
    if out is not None:
        scene.save(out)
        talk.print(f"To use it, add to rofl run: --set data.scene={out}", markup=False, highlight=False)
    if as_json:
        result.print_json(json.dumps(describe(scene)))
    else:
        result.print(scene_table(scene))


@app.command("report", epilog="Example: rofl report runs/digits-rofl-1 runs/digits-plain-1 --out both.html")
def report_command(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run folders")],
    out: Annotated[Path | None, typer.Option("--out", help="the page; report.html in the first folder")] = None,
    data_dir: DataDir = None,
) -> None:
    """Make one page of one or several finished runs."""
    from rofl import report

    page = report.write(folders, out or folders[0] / "report.html", data_dir)
    result.print(str(page), markup=False, highlight=False, soft_wrap=True)


@app.command(epilog="Example: rofl reproduce table-ablation --scale tiny --seeds 3")
def reproduce(
    name: Annotated[str, typer.Argument(help="a table or figure, or `all`; --list shows the names")] = "all",
    scale: Annotated[Scale, typer.Option(help="tiny: digits; lite: 10,000 real images; paper: as the paper")] = "tiny",
    cells: Annotated[str, typer.Option(help="only these rows, columns or methods, with commas between")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="seeds 0, 1, ... of this many runs each")] = 1,
    out: Annotated[Path, typer.Option("--out", help="where runs and results are kept")] = Path("runs/reproduce"),
    jobs: Annotated[int | None, typer.Option(min=1, help="cells side by side; one per core, 1 at scale paper")] = None,
    data_dir: DataDir = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="say what it would cost here, and run nothing")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="every table and figure by name")] = False,
    as_json: Json = False,
) -> None:
    """The paper's tables and figures, ours beside the paper's; finished cells are kept."""
    from rofl.cli import reproduce as work

    if list_all:
        listing(work.list_grids(), "table or figure", as_json)
        return
    plan = make_plan(name, scale, seeds, out, cells)
    costs = work.announce(plan, talk)
    if plan_only:
        if as_json:
            result.print_json(json.dumps(costs))
        return
    try:
        outcomes = work.reproduce(plan, jobs, data_dir, talk)
    except KeyboardInterrupt:
        talk.print("Stopped. Finished cells are kept; the same command goes on.")
        raise typer.Exit(130) from None
    text, page = work.write_all(plan, outcomes)
    if as_json:
        result.print_json(work.as_data(outcomes))
    else:
        for outcome in outcomes:
            result.print(work.show_outcome(outcome))
        talk.print(f"As Markdown: {text}\nThe page: {page}", markup=False, highlight=False)
    work.complain(outcomes)


@data_app.command("check", epilog="Example: rofl data check photos")
def check_data(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="a folder, or a .csv, .parquet or .npz file")],
    test: Test = None,
    as_json: Json = False,
) -> None:
    """Look at data of your own before a run: clients, classes, sizes, duplicates, and what cannot be read."""
    from rofl.cli import own_data

    try:
        found = own_data.check(path, test, talk)
    except UserError as error:
        if as_json:
            result.print_json(json.dumps({"usable": False, "problem": error.sentence, "try": error.hint}))
        raise
    if as_json:
        result.print_json(json.dumps(found))
    else:
        result.print(own_data.check_table(found, path.name))


@app.command("presets")
def list_presets(as_json: Json = False) -> None:
    """The presets by name."""
    listing({name: preset.about for name, preset in presets.PRESETS.items()}, "preset", as_json)


@app.command("methods")
def list_methods(as_json: Json = False) -> None:
    """The methods by name."""
    listing({name: (kind.__doc__ or "").splitlines()[0] for name, kind in METHODS.items()}, "method", as_json)


@app.command("datasets")
def list_datasets(as_json: Json = False) -> None:
    """The data sets by name."""
    listing({name: source.about for name, source in DATASETS.items()}, "data set", as_json)


def choose(
    what: str,
    sets: list[str] | None,
    method: str | None,
    seed: int | None,
    data: Path | None = None,
    test: Path | None = None,
    tell: bool = True,
) -> Experiment:
    """The experiment that the arguments describe; what is chosen for own data is told, where wanted."""
    is_file = what.endswith(".toml") or Path(what).is_file()
    changes = dict(parse_change(text) for text in sets or [])
    changes |= {} if method is None else {"method.name": method}
    changes |= {} if seed is None else {"seed": seed}
    changes |= {} if test is None else {"data.test_path": str(test)}
    if data is not None:
        from rofl.cli import own_data

        if what and not is_file:
            raise UserError(f"--data brings its own settings, so the preset {what!r} has no place.", "--set KEY=VALUE")
        return own_data.choose(
            data, changes, read_toml(Path(what)) if is_file else {}, talk if tell else Console(quiet=True)
        )
    preset = what or "digits"
    settings = read_toml(Path(what)) if is_file else presets.find(preset).for_method(changes.get("method.name"))
    chosen = experiment(with_changes(settings, changes))
    decode_own(chosen)
    return chosen


def decode_own(chosen: Experiment) -> None:
    """Decode own images while a bar shows how far it is; the run then finds them done."""
    if chosen.data.path:
        from rofl.cli import own_data

        own_data.decode(chosen.data.source, talk)


def run_all(
    plan: list[Experiment], folder: Path, watch: Watch, workers: int | None, data_dir: Path | None
) -> list[Run]:
    """Run what is not there yet; go on with what is."""
    runs = []
    for chosen in plan:
        watch.begin(chosen)
        place = RunFolder(folder / f"{chosen.method['name']}-s{chosen.seed}")
        if not place.exists():
            runs.append(run(chosen, place.path, workers=workers, data_dir=data_dir, listener=watch))
        elif place.read_experiment() == chosen:
            runs.append(resume(place.path, workers=workers, data_dir=data_dir, listener=watch))
        else:
            raise UserError(f"{place.path} holds a run with other settings.", "another --out")
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


def listing(about: dict[str, str], what: str, as_json: bool) -> None:
    """Names with a line about each."""
    if as_json:
        result.print_json(json.dumps(about))
        return
    table = Table(what, "what it is")
    for name, line in about.items():
        table.add_row(name, line)
    result.print(table)
