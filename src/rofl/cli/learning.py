"""Commands that train: run, resume, compare, demo.

What a command needs beyond its options is imported when it is called, here and in the other files of commands: torch
takes seconds, and --help or a mistyped option should not wait for it.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

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
    stderr,
    stdout,
)
from rofl.errors import unknown


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
    from rofl.cli.following import check_log, followed
    from rofl.cli.progress import ProgressListener
    from rofl.cli.resolve import resolve_experiment
    from rofl.cli.runs import show, write_page
    from rofl.training.run import next_run_dir, run

    check_log(log)
    chosen = resolve_experiment(what, sets, method, seed, data, test, labels, dp)
    folder = out or next_run_dir(chosen)
    with ProgressListener(stderr) as watch, followed(watch, chosen, folder, log) as listener:
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
    from rofl.cli.following import check_log, followed
    from rofl.cli.progress import ProgressListener
    from rofl.cli.resolve import decode_user_images
    from rofl.cli.runs import show, write_page
    from rofl.training.run import resume
    from rofl.training.run_dir import RunDir

    chosen = RunDir(folder).read_experiment()
    check_log(log)
    if not RunDir(folder).is_finished():  # then it needs its data no more
        decode_user_images(chosen)
    with ProgressListener(stderr) as watch, followed(watch, chosen, folder, log) as listener:
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
    from rofl.cli.following import check_log
    from rofl.cli.progress import ProgressListener
    from rofl.cli.resolve import resolve_experiment
    from rofl.cli.runs import run_all, write_page
    from rofl.cli.tables import comparison, comparison_table
    from rofl.methods import METHODS

    names = [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
    check_log(log)
    plan = [
        resolve_experiment(what, sets, name, seed, data, test, labels, tell=(seed, name) == (0, names[0]))
        for seed in range(seeds)
        for name in names
    ]
    folder = out or Path("runs") / f"compare-{plan[0].name}"
    with ProgressListener(stderr) as watch:
        runs = run_all(plan, folder, watch, workers, data_dir, log)
    page = write_page(runs, folder, data_dir)
    if as_json:
        stdout.print_json(json.dumps({"folder": str(folder), "methods": comparison(runs)}))
    else:
        stdout.print(comparison_table(runs))
        stderr.print(f"The page: {page}", markup=False, highlight=False)


@app.command(epilog="Example: rofl demo")
def demo(out: Out = Path("runs/demo"), workers: Workers = None, as_json: Json = False) -> None:
    """A first look: 20 clients, 40 % of the labels wrong, plain FedAvg against rofl."""
    from rofl.cli.demo import show_demo

    assert out is not None
    show_demo(out, workers, as_json)
