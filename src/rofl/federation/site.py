"""The Python API of `rofl join`: take part in a federation with this site's data, or list what would leave it."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from flwr.app import Context, RecordDict

from rofl.core.tensors import Tensors
from rofl.core.version import __version__
from rofl.data import user
from rofl.data.user.names import safe_names
from rofl.errors import UserError
from rofl.federation.agreement import Agreement, AgreementFile
from rofl.federation.answered import AnsweredRequests
from rofl.federation.credentials import SiteCredentials
from rofl.federation.event_log import LOG_FILE, EventLog
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.negotiate import negotiate
from rofl.federation.protocol import RoundRequest
from rofl.federation.site_data import LocalData, PartitionedData
from rofl.federation.site_gate import SiteGate
from rofl.federation.site_info import SiteInfo
from rofl.federation.site_node import SiteNode
from rofl.federation.site_policy import POLICY_FILE, SitePolicy
from rofl.training.run_dir import RunDir
from rofl.training.run_files import refuse_links
from rofl.training.runner import Run, resume

_PREVIEW_SAMPLES = 64  # what leaves a site does not depend on how many samples it has
Consent: TypeAlias = Callable[[Agreement, bool], bool]
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class SiteConfig:
    """The settings of a site.

    Attributes:
        credentials: The folder that the coordinator made for this site; None for a federation on one machine.
        client: Without credentials: the site's number, counted from 0.
        name: Without credentials: the site's name; "site-N" where it is empty.
        data: The site's images; None to take its part of the coordinator's data set, as a rehearsal.
        test: Images to test with; a fifth of `data` is held out where None.
        out: The folder to write; `runs/join-NAME` where None.
        data_dir: The folder of published data sets; $ROFL_DATA where None.
        policy: The file of the site's policy; `policy.toml` beside the credentials where None, and the defaults of
            `SitePolicy` where that is not there either.
    """

    credentials: Path | None = None
    client: int = 0
    name: str = ""
    data: Path | None = None
    test: Path | None = None
    out: Path | None = None
    data_dir: Path | None = None
    policy: Path | None = None


@dataclass(frozen=True)
class OutgoingData:
    """Everything that would leave a site.

    Attributes:
        info: Sent once, on connecting.
        tensors: Sent each round: named tensors, by group.
        sums: Sent each round: numbers, by name.
    """

    info: SiteInfo
    tensors: dict[str, Tensors] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)


def join(
    server: str,
    config: SiteConfig,
    *,
    on_message: Callable[[str], None] = lambda text: None,
    on_progress: user.Progress | None = None,
    consent: Consent = lambda agreement, masked: True,
) -> Run:
    """Take part in a federation until the coordinator ends it.

    Requests that the site's policy does not allow, or that differ from the first ones, are refused; `read_log` of
    `rofl.federation.event_log` returns what was asked and what left.

    Args:
        server: The coordinator's host and port.
        config: The site's name, and the path of its data.
        on_message: Called with sentences for people.
        on_progress: Called while images are decoded.
        consent: Called once with what the coordinator proposes, before anything is trained, and whether sums are
            masked; False declines.

    Returns:
        This site's finished run: the final model, and the audit of its labels.

    Raises:
        UserError: If the credentials, the policy or the data cannot be used, the folder holds a finished run, the
            coordinator is on another machine and there are no credentials, or consent is declined.
    """
    credentials, client, name = _identity(config)
    policy = read_policy(config)
    folder = config.out or Path("runs") / f"join-{safe_names([name])[0]}"
    home = folder / "flower"
    if home.is_symlink() or (folder / LOG_FILE).is_symlink():
        raise UserError(f"There are links in {folder}, and links are not followed.", "another --out")
    refuse_links(home)
    done = RunDir(folder).is_finished()
    if done and not (home / "masks").is_dir():  # which goes when the coordinator has confirmed that it has everything
        raise UserError(f"{folder} already holds what a run left here.", "another --out")
    if not server:
        raise UserError("The address of the coordinator is not given.", "--server HOST:PORT")
    host, _, port = server.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UserError(f"{server} is not an address with a port.", "--server HOST:PORT, such as localhost:9443")
    if credentials is None and host not in _LOOPBACK:
        raise UserError("--insecure is for one machine, and the coordinator is elsewhere.", "--credentials DIR")
    data: LocalData | PartitionedData
    if config.data is None:
        data = PartitionedData(out=folder, data_dir=config.data_dir, name=name)
    else:
        data = LocalData(
            out=folder,
            data_dir=config.data_dir,
            name=name,
            source=_source(config),
            progress=on_progress,
            fewest_rows=policy.min_rows_per_fact,
            tells_columns=policy.send_columns,
        )
        data.load()  # so that a mistake in the data shows before the coordinator is called
    log = EventLog(folder / LOG_FILE)
    log.write("joined", server=server, name=name, version=__version__, policy=policy.model_dump(mode="json"))
    masks = SiteMasks(client, home / "masks", credentials)
    data.noise_key = masks.noise_key
    gate = SiteGate(
        policy,
        config.data is not None,
        masks,
        log,
        AgreementFile(home / "agreement.toml"),
        AnsweredRequests(home / "answered.json"),
        consent,
    )
    SiteNode(server, data, client, home, credentials, on_message, gate, finished=done).run()
    log.write("finished")
    return resume(folder)  # it is finished, so this reads it


def preview(config: SiteConfig, *, on_progress: user.Progress | None = None) -> OutgoingData:
    """Return what would leave this site, without sending anything.

    One round is really trained on a few samples, with the settings that this site alone would lead to.

    Args:
        config: The site's name, and the path of its data.
        on_progress: Called while images are decoded.

    Raises:
        UserError: If there is no data, or it cannot be used.
    """
    credentials, client, name = _identity(config)
    if config.data is None:
        raise UserError("Without data there is nothing that could leave.", "rofl join --dry-run --data PATH")
    policy = read_policy(config)
    data = LocalData(
        name=name,
        source=_source(config),
        progress=on_progress,
        fewest_rows=policy.min_rows_per_fact,
        tells_columns=policy.send_columns,
    )
    context = Context(run_id=1, node_id=1, node_config={"partition-id": 0}, state=RecordDict(), run_config={})
    other = replace(data.load(), classes=tuple(dict.fromkeys((*data.load().classes, "another class"))))
    alone = data.load() if len(data.load().classes) > 1 else other
    experiment = negotiate([alone], {"data.train": _PREVIEW_SAMPLES, "rounds": 1, "bounds.on": True})
    site_client = data.client(RoundRequest(experiment.toml()), context)
    update, _ = site_client.train(site_client.initial_state, 1, {})
    info, masks = data.load(), SiteMasks(client, None, credentials)
    keys = (masks.public, masks.signature)
    return OutgoingData(
        SiteInfo(client, name, info.samples, info.side, info.channels, info.classes, *keys, info.columns),
        {"model": update.model, "aux": update.aux},
        {"weight": update.weight, **update.metrics},
    )


def policy_path(config: SiteConfig) -> Path | None:
    """Return where a site's policy is, or would be; None without credentials and without a path."""
    if config.policy is not None:
        return config.policy
    return config.credentials / POLICY_FILE if config.credentials is not None else None


def read_policy(config: SiteConfig) -> SitePolicy:
    """Return a site's policy: that of its file, or the defaults where there is none.

    Raises:
        UserError: If the file that is named does not exist, or it cannot be used.
    """
    path = policy_path(config)
    there = path is not None and (config.policy is not None or os.path.lexists(path))  # a link that leads nowhere is
    return SitePolicy.read(path) if path is not None and there else SitePolicy()


def _identity(config: SiteConfig) -> tuple[SiteCredentials | None, int, str]:
    """Return the site's credentials, number and name; where there are credentials, they say who the site is."""
    if config.credentials is None:
        return None, config.client, config.name or f"site-{config.client}"
    credentials = SiteCredentials.read(config.credentials)
    return credentials, credentials.index, credentials.name


def _source(config: SiteConfig) -> user.UserSource:
    assert config.data is not None
    return user.UserSource(str(config.data.absolute()), str(config.test.absolute()) if config.test else "")
