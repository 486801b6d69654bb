"""Runs cells on a Ray cluster and copies their run folders to this machine; digests do not depend on the cluster.

Ray sends pickled objects: anyone who can reach a cluster's ports can run code on its nodes, and a node can run code on
the machine that connects to it. So Ray is used only if the caller names a cluster, which belongs in a private network.
Requests and results are strings and bytes; file names are checked before anything is written.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from rofl.config.schema import Experiment, experiment_from_toml
from rofl.data.atomic import atomic_write
from rofl.errors import UserError
from rofl.reproduce.cell_runner import CellProgress, OnProgress, unfinished_cells
from rofl.reproduce.cell_usage import recorded_usage
from rofl.reproduce.run_cache import RunCache
from rofl.training.run_dir import RunDir
from rofl.training.run_files import LOCK_FILE
from rofl.training.runner import resume

_POLL_SECONDS = 0.5  # between two reports of progress
_RETRIES = 3  # of a cell whose node is lost
_LOCAL = "ray"
_LAST = "summary.json"  # its presence says that a run is finished


def run_cells_on_ray(
    experiments: Iterable[Experiment],
    cache: RunCache,
    on: str,
    data_dir: Path | None = None,
    on_progress: OnProgress | None = None,
) -> dict[Path, str]:
    """Run the unfinished experiments on a Ray cluster, each on one core, and on one GPU if the cluster has any.

    The nodes need rofl, the data sets, and the packages of external methods. An interrupted cell restarts from the
    first round; its unfinished run folder is replaced at the end.

    Args:
        experiments: The experiments; duplicates run once.
        cache: Where the run directories are kept, on this machine.
        on: "ray" for the cluster of $RAY_ADDRESS, or Ray on this machine if that is not set; or "ray://HOST:PORT".
        data_dir: Where the data sets lie on the nodes; their $ROFL_DATA if None.
        on_progress: Called about twice a second while something runs; rounds count when their cell is done.

    Returns:
        Run folder -> the reason why it could not run; empty if everything ran.

    Raises:
        UserError: Ray is not installed or cannot be reached, or another process runs cells in the same folder.
    """
    problems: dict[Path, str] = {}
    with unfinished_cells(experiments, cache) as (chosen, missing):
        if not missing:
            return problems
        ray = _connect(on)
        try:
            gpus = 1 if ray.cluster_resources().get("GPU") else 0
            options = {"num_cpus": 1, "num_gpus": gpus, "max_retries": _RETRIES, "scheduling_strategy": "SPREAD"}
            task = ray.remote(**options)(run_cell)
            waiting = {task.remote(one.toml(), str(data_dir or "")): path for path, one in missing.items()}
            while waiting:
                done, _ = ray.wait(list(waiting), timeout=_POLL_SECONDS)
                for reference in done:
                    path = waiting.pop(reference)
                    if problem := _keep(ray, reference, missing[path], RunDir(path)):
                        problems[path] = problem
                if on_progress is not None:
                    left = set(waiting.values())
                    rounds = sum(one.rounds for path, one in chosen.items() if path not in left)
                    on_progress(CellProgress(rounds, sum(one.rounds for one in chosen.values()), tuple(sorted(left))))
        finally:
            ray.shutdown()
    return problems


def run_cell(settings: str, data_dir: str) -> tuple[str, dict[str, bytes]]:
    """Run one cell on a node of the cluster; Ray calls this.

    Args:
        settings: The experiment as TOML.
        data_dir: Where the data sets lie; "" for $ROFL_DATA.

    Returns:
        The reason why it could not run, "" if it did; and the files of its run folder by relative path.
    """
    import ray

    node = ray.get_runtime_context().get_node_id()
    with tempfile.TemporaryDirectory(prefix="rofl-cell-") as place:
        run_dir = RunDir(Path(place) / "run")
        try:
            run_dir.write_experiment(experiment_from_toml(settings))
            with recorded_usage(run_dir.path, node):
                resume(run_dir.path, workers=0, data_dir=Path(data_dir) if data_dir else None)
        except UserError as error:
            return str(error), {}
        except Exception as error:
            return f"{type(error).__name__}: {error}", {}
        files = [path for path in run_dir.path.rglob("*") if path.is_file() and path.name != LOCK_FILE]
        return "", {path.relative_to(run_dir.path).as_posix(): path.read_bytes() for path in files}


def _connect(on: str) -> Any:
    """Connect to a cluster, without usage statistics and a dashboard, and return the module `ray`."""
    if on != _LOCAL and not on.startswith("ray://"):
        raise UserError(f"--on takes ray or ray://HOST:PORT, not {on!r}.", "--on ray")
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed.", "pip install 'fed-noisy-labels[simulation]'") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise Ray sends usage statistics
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as later versions do; else Ray warns
    address = os.environ.get("RAY_ADDRESS") or None if on == _LOCAL else on
    fresh = {} if address else {"include_dashboard": False}
    try:
        ray.init(address, log_to_driver=False, logging_level="error", **fresh)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise UserError(f"Ray cannot be reached at {address or 'this machine'} ({error}).", "ray status") from error
    return ray


def _keep(ray: Any, reference: Any, asked: Experiment, run_dir: RunDir) -> str:
    """Write the files of a finished cell, and return the reason if it could not run.

    Args:
        ray: The module.
        reference: The reference of the finished task.
        asked: The experiment.
        run_dir: Where its files go.
    """
    try:
        problem, files = ray.get(reference)
    except ray.exceptions.RayError as error:
        return f"Ray lost it ({type(error).__name__}); run it again"
    if problem:
        return str(problem)
    if not {"config.toml", _LAST} <= files.keys() or not all(map(_is_inside, files)):
        return "its node sent files that no run has"
    if files["config.toml"].decode(errors="replace") != asked.toml():
        return "its node ran other settings than those asked for; it needs the same version of rofl"
    run_dir.remove()
    write_files(run_dir.path, files)
    return ""


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files of a run by their relative paths; the file that marks the run as finished comes last."""
    for name in sorted(files, key=lambda name: name == _LAST):
        atomic_write(folder / name, files[name])


def _is_inside(name: str) -> bool:
    """Return whether a relative path stays inside its folder."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and len(path.parts) in (1, 2)
