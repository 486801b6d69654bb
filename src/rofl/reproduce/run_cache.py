"""A cache of the run directories of table cells, indexed by settings."""

import hashlib
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.data.user.names import safe_names
from rofl.training.run_dir import RunDir


class RunCache:
    """Run directories in one folder, identified by all settings except the experiment's name.

    Tables share cells, and a finished cell is not run again. Directories may have any name: their config.toml
    identifies them.

    Args:
        folder: The folder that holds the run directories; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        existing = [RunDir(path.parent) for path in sorted(folder.glob("*/config.toml"))]
        self._run_dirs = {_key(run_dir.read_experiment()): run_dir for run_dir in existing}

    def find(self, experiment: Experiment) -> RunDir:
        """Return the run directory of an experiment, which may not exist yet."""
        key = _key(experiment)
        if key not in self._run_dirs:
            noise = f"{experiment.noise.kind}-{experiment.noise.expected_ratio:g}"
            stem = f"{experiment.data.name}-{noise}-{experiment.method_name}-s{experiment.seed}"
            name = f"{safe_names([stem])[0]}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
            self._run_dirs[key] = RunDir(self.folder / name)
        return self._run_dirs[key]

    def is_finished(self, experiment: Experiment) -> bool:
        """Return whether the run of an experiment is finished."""
        return self.find(experiment).is_finished()


def _key(experiment: Experiment) -> str:
    """Return all settings but the name, defaults included, so that directories of older versions are found too."""
    return experiment.model_copy(update={"name": ""}).toml()
