"""The Python API of `rofl join`: join a federation with this site's data, or list the data that would leave it."""

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
from rofl.federation.credentials import SiteCredentials
from rofl.federation.event_log import LOG_FILE, EventLog
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.negotiate import negotiate
from rofl.federation.protocol import RoundRequest
from rofl.federation.site_data import LocalData, PartitionedData
from rofl.federation.site_gate import SiteGate
from rofl.federation.site_info import SiteInfo
from rofl.federation.site_memory import Agreement, AgreementFile, AnsweredRequests
from rofl.federation.site_node import SiteNode
from rofl.federation.site_policy import POLICY_FILE, SitePolicy
from rofl.training.run_dir import RunDir
from rofl.training.run_files import refuse_links
from rofl.training.runner import Run, resume

_PREVIEW_SAMPLES = 64  # the form of an update does not depend on the number of samples
Consent: TypeAlias = Callable[[Agreement, bool], bool]
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class SiteConfig:
    """The settings of a site.

    Attributes:
        credentials: The folder that the coordinator made for this site; None for a federation on one machine.
        client: The site's number, counted from 0; not used with credentials.
        name: The site's name, "site-N" if empty; not used with credentials.
        data: The site's samples; None to use the site's part of the coordinator's data set, as a rehearsal.
        test: Samples for tests; a fifth of `data` is held out if None.
        out: The folder to write; `runs/join-NAME` if None.
        data_dir: The folder of published data sets; $ROFL_DATA if None.
        policy: The file of the site's policy. None reads `policy.toml` beside the credentials, or uses the defaults of
            `SitePolicy` if there is no such file.
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
    """The data that would leave a site.

    Attributes:
        info: The greeting, which is sent once on connecting.
        tensors: The named tensors of each round, by group.
        sums: The numbers of each round, by name.
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

    Refuses requests that the site's policy does not allow, or whose settings differ from the agreed ones.
    `rofl.federation.event_log.read_log` returns all requests, and the data that left.

    Args:
        server: The coordinator's host and port.
        config: The site's settings, such as its credentials and the path of its data.
        on_message: Called with status messages for the user.
        on_progress: Called while images are decoded.
        consent: Called once before training, with the proposed agreement and whether sums are masked; False declines.

    Returns:
        This site's finished run, with the final model and the audit of the site's labels.

    Raises:
        UserError: If the credentials, the policy or the data cannot be used; if the folder holds a finished run; if
            there are no credentials for a coordinator on another machine; or if consent is declined.
    """
    credentials, client, name = _identity(config)
    policy = read_policy(config)
    folder = config.out or Path("runs") / f"join-{safe_names([name])[0]}"
    home = folder / "flower"
    if home.is_symlink() or (folder / LOG_FILE).is_symlink():
        raise UserError(f"There are links in {folder}, and links are not followed.", "another --out")
    refuse_links(home)
    done = RunDir(folder).is_finished()
    if done and not (home / "masks").is_dir():  # deleted once the coordinator has confirmed the end
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
        data.load()  # so that an error in the data shows before connecting
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
    return resume(folder)  # reads the finished run


def preview(config: SiteConfig, *, on_progress: user.Progress | None = None) -> OutgoingData:
    """Return the data that would leave this site, without sending anything.

    Trains one round on a few samples, with the settings that would be chosen for this site alone.

    Args:
        config: The site's settings, such as its name and the path of its data.
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
    """Return the path of a site's policy file, which need not exist; None without credentials and without a path."""
    if config.policy is not None:
        return config.policy
    return config.credentials / POLICY_FILE if config.credentials is not None else None


def read_policy(config: SiteConfig) -> SitePolicy:
    """Read a site's policy file, or return the default policy if there is none.

    Raises:
        UserError: If `config.policy` does not exist, or the file is invalid.
    """
    path = policy_path(config)
    there = path is not None and (config.policy is not None or os.path.lexists(path))  # a broken link counts, too
    return SitePolicy.read(path) if path is not None and there else SitePolicy()


def _identity(config: SiteConfig) -> tuple[SiteCredentials | None, int, str]:
    """Return the site's credentials, number and name; credentials determine the other two."""
    if config.credentials is None:
        return None, config.client, config.name or f"site-{config.client}"
    credentials = SiteCredentials.read(config.credentials)
    return credentials, credentials.index, credentials.name


def _source(config: SiteConfig) -> user.UserSource:
    assert config.data is not None
    return user.UserSource(str(config.data.absolute()), str(config.test.absolute()) if config.test else "")
