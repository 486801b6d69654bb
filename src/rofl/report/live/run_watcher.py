"""Polls a run folder for the live view. It writes nothing and imports no code that the folder names.

The folder is not trusted: modules named in its settings are not imported, symbolic links are not followed, and a file
that is too large or damaged is reported in one sentence.
"""

import fcntl
import os
import threading
import time
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path

from rofl.core.settings import Settings
from rofl.data.regular_file import read_regular
from rofl.errors import UserError, one_line
from rofl.report.live.round_history import RoundHistory
from rofl.report.live.run_view import Role, RunView, SiteView, State
from rofl.report.live.site_events import LOG_FILE, SiteEvents
from rofl.training.records import RunSummary
from rofl.training.run_dir import RunDir
from rofl.training.run_files import LOCK_FILE

_FRESH = 0.5  # seconds for which a view is cached, whatever the number of readers
_MOST_SETTINGS = 2**20  # bytes of config.toml
_MOST_CLIENTS = 200  # listed at most
_MOST_ROUNDS = 10**9  # a larger value is taken for damaged data


class RunWatcher:
    """Reads a run folder repeatedly and returns its current view.

    Args:
        folder: The run folder; `check_watchable` checks that it is one.
    """

    def __init__(self, folder: Path) -> None:
        self._run_dir = RunDir(folder)
        self._history = RoundHistory(self._run_dir.log_path, self._client_name)
        self._names: list[str] = []  # of the clients, by number
        self._events = SiteEvents(folder / LOG_FILE)
        self._summary: RunSummary | None = None
        self._summary_seen: tuple[int, int] | None = None  # modification time and size of summary.json
        self._summary_problem = ""
        self._lock = threading.Lock()
        self._view: RunView | None = None
        self._looked = 0.0

    def view(self) -> RunView:
        """Return the current state of the run; may be called from several threads."""
        with self._lock:
            if self._view is None or time.monotonic() - self._looked > _FRESH:
                self._view, self._looked = self._look(), time.monotonic()
            return self._view

    def _look(self) -> RunView:
        problems: list[str] = []
        settings = self._read_settings(problems)
        summary = self._read_summary(problems)
        history, events = self._history, self._events
        self._names = self._run_dir.read_client_names()
        history.update()
        events.update()
        for name, source in ((self._run_dir.log_path.name, history), (LOG_FILE, events)):
            if source.lines.problem:
                problems.append(f"{name} cannot be read ({source.lines.problem}).")
            if source.damaged or source.lines.too_long:
                problems.append(
                    f"{name} has {source.damaged + source.lines.too_long} damaged lines, which are skipped."
                )
        role: Role = "coordinator" if self._run_dir.is_served else "site" if events.is_site else "run"
        if role == "site" and not settings:  # a site writes config.toml with its summary
            settings = _parse_settings(events.settings)
        index = max(history.newest.round if history.newest else 0, events.done if role == "site" else 0)
        rounds = _number(settings, "rounds")
        state = self._state(summary, role, index)
        done = summary.rounds_run or summary.rounds if summary else 0
        per_round = events.seconds_per_round() if role == "site" else history.seconds_per_round()
        running = state == "running" and rounds and per_round is not None
        return RunView(
            name=self._run_dir.path.resolve().name,
            role=role,
            state=state,
            sentence=self._sentence(state, role, index, rounds, summary),
            facts=_facts(settings),
            rounds=rounds,
            round=max(index, done),
            accuracy=history.curve[-1][1] if history.curve else None,
            best=history.best,
            measured=_measured(settings),
            seconds_left=per_round * max(rounds - index, 0) if running and per_round is not None else None,
            seconds_per_round=per_round,
            seconds=_finite(summary.seconds) if summary else None,
            curve=list(history.curve),
            trusted=list(history.trusted),
            noise=_finite(summary.estimated.ratio) if summary and summary.estimated else None,
            sites=self._sites(role, summary),
            warnings=list(reversed(history.warnings)),
            events=list(events.events),
            problems=problems,
        )

    def _read_settings(self, problems: list[str]) -> Settings:
        """Return the content of config.toml without importing any method or data set that it names."""
        path = self._run_dir.path / "config.toml"
        try:
            return tomllib.loads(read_regular(path, _MOST_SETTINGS, follow=False).decode())
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not TOML"
            problems.append(f"config.toml cannot be read ({reason}).")
            return {}

    def _read_summary(self, problems: list[str]) -> RunSummary | None:
        """Return the summary; the file is read again only after it has changed."""
        try:
            found = os.stat(self._run_dir.path / "summary.json", follow_symlinks=False)
        except OSError:
            self._summary = self._summary_seen = None
            return None
        if self._summary_seen != (found.st_mtime_ns, found.st_size):
            self._summary_seen, self._summary_problem = (found.st_mtime_ns, found.st_size), ""
            try:
                self._summary = self._run_dir.read_summary()
            except UserError as error:
                self._summary, self._summary_problem = None, error.sentence
        if self._summary_problem:
            problems.append(self._summary_problem)
        return self._summary

    def _state(self, summary: RunSummary | None, role: Role, index: int) -> State:
        if summary is not None:
            return "finished"
        if not is_locked(self._run_dir.path):
            return "stopped"
        return "waiting" if role != "run" and not index and not self._events.agreed else "running"

    def _sentence(self, state: State, role: Role, index: int, rounds: int, summary: RunSummary | None) -> str:
        folder = self._run_dir.path
        if state == "finished":
            early = f"{summary.stopped} " if summary and summary.stopped else ""
            return f"{early}Its page is {folder / 'report.html'}."
        if state == "waiting":
            return "Waiting for the sites." if role == "coordinator" else "Waiting for the coordinator."
        if state == "stopped":
            again = {"run": f"rofl resume {folder}", "coordinator": f"rofl serve --resume {folder}"}.get(role)
            return "No program works on this run." + (
                f" Continue with: {again}" if again else " Join again to continue."
            )
        if rounds and index >= rounds:
            return "All rounds are done; the labels are being judged."
        return f"Round {index + 1} of {rounds} is under way." if rounds else "Under way."

    def _sites(self, role: Role, summary: RunSummary | None) -> list[SiteView]:
        """Return the sites of a federation, or the clients of the newest round, with their noise if known."""
        known = summary.estimated.clients if summary and summary.estimated else {}
        newest = self._history.newest
        if role != "coordinator" and known:
            sites = [SiteView(name) for name in known]
        elif role == "run" and newest is not None:
            left_out = newest.dropped
            sites = [
                SiteView(
                    self._client_name(client),
                    state=f"left out: {left_out[str(client)]}" if str(client) in left_out else "took part",
                    failed=str(client) in left_out,
                )
                for client in newest.cohort[:_MOST_CLIENTS]
            ]
        else:
            sites = list(self._events.sites.values())
        return [replace(site, noise=_finite(known.get(site.name))) for site in sites[:_MOST_CLIENTS]]

    def _client_name(self, client: int) -> str:
        """Return the name of a client or site, or its number if it has no name."""
        return one_line(self._names[client])[:100] if 0 <= client < len(self._names) else f"client {client}"


def check_watchable(folder: Path) -> None:
    """Raise a UserError unless a run or a federation was started in the folder."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}.", "rofl watch RUN, the folder of a run")
    if not any((folder / name).is_file() for name in ("config.toml", "serve.toml", LOG_FILE)):
        raise UserError(f"{folder} holds no run.", "the folder that rofl run or rofl serve names")


def is_locked(folder: Path) -> bool:
    """Return whether a process works in a run folder; it holds a lock, which the system releases when it ends.

    There is no way to query the lock, so the function takes a shared lock and releases it after some microseconds.
    """
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _parse_settings(text: str) -> Settings:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _facts(settings: Settings) -> dict[str, str]:
    """Return the main settings as text, by name."""
    data, noise = _table(settings, "data"), _table(settings, "noise")
    path = str(data.get("path") or "")
    ratio = noise.get("ratio")
    site = data.get("client_name") if path else None  # a site's settings, as it writes them at the end
    found = {
        "Site": site,
        "Data": Path(path).name if path else "the sites' own" if data.get("name") == "own" else data.get("name"),
        "Method": _table(settings, "method").get("name"),
        "Model": _table(settings, "model").get("name"),
        "Clients": None if site else settings.get("clients"),
        "Clients per round": None if site else settings.get("cohort"),
        "Added noise": f"{noise.get('kind', '')} {ratio:g}" if isinstance(ratio, int | float) and ratio else None,
        "Seed": settings.get("seed"),
    }
    return {name: one_line(str(value))[:100] for name, value in found.items() if value not in (None, "")}


def _measured(settings: Settings) -> str:
    data = _table(settings, "data")
    own = bool(data.get("path") or data.get("classes"))
    return "held-out samples, against their labels as given" if own else "the test set"


def _table(settings: Settings, name: str) -> Mapping[str, object]:
    value = settings.get(name)
    return value if isinstance(value, Mapping) else {}


def _number(settings: Settings, name: str) -> int:
    value = settings.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_ROUNDS else 0


def _finite(value: float | None) -> float | None:
    """Return the number if JSON can represent it, else None."""
    return value if value is not None and isfinite(value) else None
