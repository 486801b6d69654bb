"""The sites of a federation, read from its log: their requests and answers.

This module does not verify the hash chain of the log; `rofl federation log` does.
"""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from rofl.report.live.json_lines import JsonLines
from rofl.report.live.run_view import EventView, SiteView

LOG_FILE = "federation-log.jsonl"  # as in rofl.federation.event_log, which this package may not import
_MOST_EVENTS = 40
_MOST_SITES = 1000
_LONGEST = 300  # characters of an event, or of one of its fields
_LONGEST_SETTINGS = 2**20  # characters of the agreed settings
_NEWEST = 5  # number of newest rounds that the time per round is computed from
_AT_END = ("noise", "sure", "scores", "report", "finish")  # tasks after the last round
_WORK = {
    "train": "training",
    "evaluate": "testing",
    "noise": "counting predictions",
    "sure": "counting sure predictions",
    "scores": "adding up scores",
    "report": "counting suspects",
    "finish": "judging its labels",
    "unmask": "unmasking a sum",
    "describe": "describing itself",
    "confirm": "confirming the end",
}

Line: TypeAlias = Mapping[str, object]


class SiteEvents:
    """The events in federation-log.jsonl, read as the file grows.

    Args:
        path: The file.

    Attributes:
        sites: The sites by name, in the order of their first event.
        events: The newest events, newest first.
        round: The newest round that the log mentions.
        done: The newest round that is over, as far as a site knows: it was asked for the next one, or for its report.
        settings: The agreed settings of a site, as TOML; empty if not agreed yet.
        agreed: Whether the settings are agreed, which requires that all sites have connected.
        is_site: Whether this is the log of a site, not of a coordinator.
        damaged: Number of lines that are not valid events.
    """

    def __init__(self, path: Path) -> None:
        self.lines = JsonLines(path)
        self._clear()

    def _clear(self) -> None:
        self.sites: dict[str, SiteView] = {}
        self.events = deque[EventView](maxlen=_MOST_EVENTS)
        self.round = self.done = self.damaged = 0
        self.settings = ""
        self._asked = deque[tuple[int, float]](maxlen=_NEWEST + 1)  # (round, time) of requests to train
        self.is_site = self.agreed = False

    def update(self) -> None:
        """Read the events that were added since the last call."""
        before = self.lines.started_over
        new = self.lines.read_new()
        if self.lines.started_over != before:
            self._clear()
        for line in new:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            if isinstance(entry, dict):
                self._add(entry)
            else:
                self.damaged += 1

    def _add(self, entry: Line) -> None:
        event, time, name = _text(entry, "event"), _text(entry, "time"), _text(entry, "site")
        index = entry.get("round")
        if isinstance(index, int) and not isinstance(index, bool):
            self.round = max(self.round, index)
        self.is_site = self.is_site or event in ("joined", "sent")
        if event in ("settings", "agreed"):
            self.agreed, settings = True, entry.get("settings")
            self.settings = settings if isinstance(settings, str) and len(settings) <= _LONGEST_SETTINGS else ""
        if event == "asked":
            self._note_round(_text(entry, "kind"), time)
        failed = event in ("failed", "refused", "not admitted", "withheld")
        self.events.appendleft(EventView(time, _describe(entry)[:_LONGEST], failed))
        if not name or (name not in self.sites and len(self.sites) >= _MOST_SITES):
            return
        site = replace(self.sites.get(name, SiteView(name)), last=time, failed=failed)
        samples = entry.get("samples")
        if event == "admitted":
            site = replace(site, state="connected", samples=samples if isinstance(samples, int) else None)
        elif event == "asked":
            site = replace(site, state=_work(entry))
        elif event == "received":
            site = replace(site, state=f"has answered ({_work(entry)})")
        elif event == "failed":
            site = replace(site, state=f"failed: {_text(entry, 'reason')}"[:_LONGEST])
        self.sites[name] = site

    def _note_round(self, kind: str, time: str) -> None:
        """Record which rounds are over, and when the newest ones began."""
        if kind == "train" and (not self._asked or self._asked[-1][0] < self.round):
            self.done = max(self.done, self.round - 1)
            try:
                self._asked.append((self.round, datetime.fromisoformat(time).timestamp()))
            except (ValueError, OverflowError):
                self._asked.clear()
        elif kind in _AT_END:
            self.done = self.round

    def seconds_per_round(self) -> float | None:
        """Return the time between requests to train, from the newest rounds; None if unknown."""
        if len(self._asked) < 2:
            return None
        (first, start), (last, end) = self._asked[0], self._asked[-1]
        return (end - start) / (last - first) if end >= start else None


def _describe(entry: Line) -> str:
    """Describe an event in words."""
    event, name = _text(entry, "event"), _text(entry, "site")
    reason = _text(entry, "reason")
    left_out = entry.get("left_out")
    if event == "round":
        names = ", ".join(map(str, left_out)) if isinstance(left_out, list | dict) else ""
        return f"round {entry.get('round')} is done" + (f", without {names}" if names else "")
    size = f", {entry['bytes']} bytes" if isinstance(entry.get("bytes"), int) and entry["bytes"] else ""
    sites = entry.get("sites")
    names = ", ".join(map(str, sites)) if isinstance(sites, list) else ""
    words = {
        "admitted": f"{name} is here with {entry.get('samples')} samples",
        "not admitted": reason,
        "settings": "the settings are agreed",
        "agreed": "the settings are agreed",
        "joined": f"joined {_text(entry, 'server')} as {_text(entry, 'name')}",
        "asked": f"{f'{name} was ' if name else f'{names} were ' if names else ''}asked: {_work(entry)}",
        "received": f"{name} has answered: {_work(entry)}{size}",
        "sent": f"sent: {_work(entry)}{size}",
        "failed": f"{name} failed: {reason}",
        "refused": f"refused: {reason}",
        "withheld": f"withheld: {_work(entry)}",
        "objections": f"the model of round {entry.get('round')} is much worse than the local models of {names}",
        "set aside": f"{name} is set aside until it answers: it was late" if name else _text(entry, "message"),
        "rolled back": _text(entry, "message"),
        "keys": _text(entry, "change"),
        "alone": f"label noise is estimated from this site's labels alone: {reason}",
        "confirmed": "the coordinator has all counts",
    }
    return words.get(event, "") or event


def _work(entry: Line) -> str:
    """Return the task and the round of a request, in words."""
    kind = _text(entry, "kind").removeprefix("query.")
    index = entry.get("round")
    return _WORK.get(kind, kind) + (f", round {index}" if isinstance(index, int) and index else "")


def _text(entry: Line, name: str) -> str:
    value = entry.get(name, "")
    return value[:_LONGEST] if isinstance(value, str) else ""
