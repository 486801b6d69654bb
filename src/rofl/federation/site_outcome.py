"""The run folder that a site writes at the end: like that of a local run, so that the same commands read it."""

import json
from dataclasses import dataclass

from torch import Tensor

from rofl.audit.noise_estimation import LabelNoise
from rofl.audit.result import AuditResult
from rofl.config.schema import Experiment
from rofl.methods.base import ServerState
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.checkpoint_files import Checkpoint
from rofl.training.records import RoundRecord
from rofl.training.run_dir import RunDir
from rofl.training.run_monitor import RunMonitor
from rofl.training.run_outcome import RunOutcome
from rofl.training.run_progress import Trained


@dataclass(frozen=True)
class SiteOutcome:
    """The saved model's predictions and audit of a site's samples.

    Attributes:
        experiment: The settings as the site reads them.
        network: The whole network.
        audit: The audit of this site's labels.
        noise: The label noise over all sites; None where there is no estimate.
        logits: (N, K) of the saved model on this site's training samples.
        test_logits: (M, K) of the saved model on its test samples.
    """

    experiment: Experiment
    network: NetworkSpec
    audit: AuditResult
    noise: LabelNoise | None
    logits: Tensor
    test_logits: Tensor

    def write(self, run_dir: RunDir, server_state: ServerState, history: str) -> None:
        """Write the run folder.

        Args:
            run_dir: The folder.
            server_state: The saved model, the only one that the site got.
            history: The records of all rounds, as a JSON list.
        """
        trained = self._trained(server_state, [RoundRecord.model_validate(each) for each in json.loads(history)])
        run_dir.audit.write_noise(self.noise)
        run_dir.write_experiment(self.experiment)
        run_dir.write_history(trained.history)
        run_dir.checkpoints.write(Checkpoint(trained.selected_round, trained.selected_state, {}))
        RunOutcome(self.experiment, self.network, trained, self.audit, self.logits, self.test_logits).write(run_dir)

    def _trained(self, server_state: ServerState, history: list[RoundRecord]) -> Trained:
        """Return the outcome of all rounds as the site knows it."""
        monitor = RunMonitor(self.experiment)
        monitor.replay(history)
        is_best = self.experiment.select == "best" and monitor.best_round is not None
        index = monitor.best_round if is_best and monitor.best_round else len(history)
        return Trained(server_state, history, "best" if is_best else "last", index, server_state, monitor.stop_reason)
