"""What `rofl join` does: a site from its arguments, a look at what would leave it, and its part in a run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context, RecordDict

from rofl.core.tensors import Tensors
from rofl.data import user
from rofl.errors import UserError
from rofl.federation.credentials import SiteCredentials
from rofl.federation.negotiate import negotiate
from rofl.federation.protocol import RoundRequest
from rofl.federation.site_data import LocalData, PartitionedData
from rofl.federation.site_node import SiteNode
from rofl.federation.site_registry import SiteInfo as Greeting
from rofl.training.run_dir import RunDir

_TRIED = 64  # samples that a rehearsal trains on: what leaves does not depend on how many


@dataclass(frozen=True)
class Site:
    """A site from its arguments."""

    name: str
    client: int
    credentials: SiteCredentials | None
    host: LocalData | PartitionedData
    out: Path

    @classmethod
    def of(
        cls,
        credentials: Path | None,
        client: int,
        name: str,
        data: Path | None,
        test: Path | None,
        out: Path | None,
        data_dir: Path | None,
        progress: user.Progress | None = None,
    ) -> "Site":
        """Read the credentials, which say who this is; without any, the arguments do."""
        known = SiteCredentials.read(credentials) if credentials is not None else None
        title, number = (known.name, known.index) if known else (name or f"site-{client}", client)
        folder = out or Path("runs") / f"join-{title}"
        if RunDir(folder).is_finished():
            raise UserError(f"{folder} already holds what a run left here.", "another --out")
        host: LocalData | PartitionedData
        if data is None:
            host = PartitionedData(out=folder, data_dir=data_dir, name=title)
        else:
            source = user.UserSource(str(data.absolute()), str(test.absolute()) if test else "")
            host = LocalData(out=folder, data_dir=data_dir, name=title, source=source, progress=progress)
        return cls(title, number, known, host, folder)

    def take_part(self, server: str, tell: Callable[[str], None]) -> None:
        """Until the coordinator says that it is over."""
        if isinstance(self.host, LocalData):
            _ = self.host.images  # what is wrong with the data shows before anybody is called
        SiteNode(server, self.host, self.client, self.out / "flower", self.credentials, tell).run()

    def departing(self) -> tuple[dict[str, object], dict[str, Tensors], dict[str, float]]:
        """What would leave this site: what it says of itself, and an update's groups of arrays and its sums.

        One round is really trained, on a few samples, with the settings that this site alone would lead to.
        """
        if isinstance(self.host, PartitionedData):
            raise UserError("Without data there is nothing that could leave.", "rofl join --dry-run --data PATH")
        context = Context(run_id=1, node_id=1, node_config={"partition-id": 0}, state=RecordDict(), run_config={})
        said = dict(self.host.describe(RoundRequest(""), context))
        images = self.host.images
        greeting = Greeting(0, self.name, len(images.train_labels), {**said, "classes": list(images.classes)})
        chosen = negotiate([greeting], {"data.train": _TRIED, "rounds": 1})
        host = LocalData(name=self.name, source=self.host.source, progress=self.host.progress)
        seat = host.seat(RoundRequest(chosen.toml()), context)
        update, _ = seat.train(seat.first, 1, {})
        groups = {"model": update.model, "aux": update.aux}
        return {**said, "client": self.client}, groups, {"weight": update.weight, **update.metrics}
