"""The greetings of all sites, in a file of the run folder, so that a resumed run knows sites that are not connected."""

import json
from collections.abc import Mapping
from pathlib import Path

from flwr.app import ConfigRecord, RecordDict

from rofl.core.serialization import parse_json
from rofl.data import atomic
from rofl.data.regular_file import read_regular
from rofl.errors import UserError
from rofl.federation.site_info import SiteInfo

SITES_FILE = "sites.json"
_MAX_BYTES = 2**26


class SitesFile:
    """A file with the greetings of a run's sites.

    Args:
        path: The file; None to keep nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def read(self) -> dict[int, SiteInfo]:
        """Return the sites by their numbers; none where there is no file.

        Raises:
            UserError: If the file is damaged.
        """
        if self._path is None or not self._path.exists():
            return {}
        try:
            greetings = parse_json(read_regular(self._path, _MAX_BYTES, follow=False).decode())
            sites = [SiteInfo.decode(RecordDict({"site": ConfigRecord(dict(each))})) for each in greetings]
        except (OSError, ValueError, TypeError, KeyError, AttributeError, UserError) as error:
            raise UserError(f"{self._path} is damaged ({error}).", "delete it; the sites say it again") from error
        return {site.client: site for site in sites}

    def write(self, sites: Mapping[int, SiteInfo]) -> None:
        """Write all sites."""
        if self._path is not None:
            greetings = [sites[client].fields() for client in sorted(sites)]
            atomic.atomic_write(self._path, json.dumps(greetings, indent=1) + "\n")
