"""Run directories of table cells, found again by their settings."""

import hashlib
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.training.run_dir import RunDir


class RunCache:
    """Run folders of cells, found again by their settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = [RunDir(path.parent) for path in sorted(folder.glob("*/config.toml"))]
        self._places = {_key(place.read_experiment()): place for place in found}

    def place(self, experiment: Experiment) -> RunDir:
        """The folder of this experiment, whether it ran already or not."""
        key = _key(experiment)
        if key not in self._places:
            noise = f"{experiment.noise.kind}-{experiment.noise.expected_ratio:g}"
            stem = f"{experiment.data.name}-{noise}-{experiment.method['name']}-s{experiment.seed}"
            self._places[key] = RunDir(self.folder / f"{stem}-{hashlib.sha256(key.encode()).hexdigest()[:8]}")
        return self._places[key]


def _key(experiment: Experiment) -> str:
    """All settings but the name, defaults too: folders of older versions are found as well."""
    return experiment.model_copy(update={"name": ""}).toml()
