"""The run folder that a site writes at the end, in the format of a local run."""

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
    """The saved model's predictions on a site's samples, and the audit of their labels.

    Attributes:
        experiment: The settings as the site reads them.
        network: The whole network.
        audit: The audit of this site's labels.
        noise: The label noise over all sites; None if there is no estimate.
        logits: The saved model's logits of this site's training samples, (N, K).
        test_logits: The saved model's logits of its test samples, (M, K).
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
            server_state: The server state with the saved model.
            history: The records of all rounds, as a JSON list.
        """
        trained = self._trained(server_state, [RoundRecord.model_validate(each) for each in json.loads(history)])
        run_dir.audit.write_noise(self.noise)
        run_dir.write_experiment(self.experiment)
        run_dir.write_history(trained.history)
        run_dir.checkpoints.write(Checkpoint(trained.selected_round, trained.selected_state, {}))
        RunOutcome(self.experiment, self.network, trained, self.audit, self.logits, self.test_logits).write(run_dir)

    def _trained(self, server_state: ServerState, history: list[RoundRecord]) -> Trained:
        """Return the outcome of training; the last and the selected server state are both the received one."""
        monitor = RunMonitor(self.experiment)
        monitor.replay(history)
        is_best = self.experiment.select == "best" and monitor.best_round is not None
        index = monitor.best_round if is_best and monitor.best_round else len(history)
        return Trained(server_state, history, "best" if is_best else "last", index, server_state, monitor.stop_reason)
