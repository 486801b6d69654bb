"""A site's greeting: its name and number, and a description of its data; and the file of all greetings of a run.

This module is the only one that encodes and decodes greetings. Decoding checks types, ranges and lengths and raises an
error for a malformed greeting; the coordinator then continues without that site.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flwr.app import ConfigRecord, RecordDict

from rofl.core.serialization import parse_json
from rofl.data import atomic
from rofl.data.regular_file import read_regular
from rofl.data.user.shared_columns import parse_columns
from rofl.errors import UserError
from rofl.federation.protocol import PROTOCOL, check_protocol, is_int
from rofl.federation.tensor_records import MAX_COUNT

SITES_FILE = "sites.json"
_MAX_BYTES = 2**26  # of that file
_GREETING = "site"  # the record's name, as in 0.1
_MAX_NAME = 100  # characters
_MAX_CLASSES, _MAX_CLASS_NAME = 10_000, 255
_MAX_SIDE = 1024  # pixels
_MASK_KEY, _MAX_SIGNATURE = 32, 200  # bytes


@dataclass(frozen=True)
class SiteInfo:
    """The greeting: a site's name and number, and a description of its data.

    Attributes:
        client: The site's number, counted from 0.
        name: The site's display name.
        samples: The number of training samples.
        side: The side of the square images in pixels; None for tables and texts, or if the settings name the data set.
        channels: 1 for grey images, 3 for colours; None for tables and texts, or if the settings name the data set.
        classes: The names of the site's classes; empty if the settings name the data set.
        mask_key: The public key for masks (`rofl.federation.masking`); empty if the site cannot mask.
        mask_signature: The site's signature of that key; empty without credentials.
        columns: The description of a table's columns, or of texts, as an encoder in JSON; "" for images.
    """

    client: int
    name: str
    samples: int
    side: int | None = None
    channels: int | None = None
    classes: tuple[str, ...] = ()
    mask_key: bytes = b""
    mask_signature: bytes = b""
    columns: str = ""

    def fields(self) -> dict[str, int | str | list[str]]:
        """Return the fields of the message, by name; `rofl join --dry-run` lists them."""
        fields: dict[str, int | str | list[str]] = {
            "client": self.client,
            "name": self.name,
            "samples": self.samples,
            "protocol": PROTOCOL,
        }
        if self.side is not None and self.channels is not None:
            fields |= {"side": self.side, "channels": self.channels, "classes": list(self.classes)}
        if self.columns:
            fields |= {"columns": self.columns, "classes": list(self.classes)}
        if self.mask_key:
            fields |= {"mask key": self.mask_key.hex(), "mask signature": self.mask_signature.hex()}
        return fields

    def encode(self) -> RecordDict:
        """Return the greeting as a message."""
        return RecordDict({_GREETING: ConfigRecord(dict(self.fields()))})

    @classmethod
    def decode(cls, content: RecordDict, known_name: str = "") -> "SiteInfo":
        """Return the greeting of a message.

        Args:
            content: The message.
            known_name: The name that belongs to the site's key; "" uses the name in the greeting.

        Raises:
            ProtocolError: If the site uses another version of the protocol.
            ValueError: If a field is missing, or has a wrong type, range or length.
        """
        record = content.get(_GREETING)
        if not isinstance(record, ConfigRecord):
            raise ValueError("A site's greeting has no record 'site'.")
        name = known_name or record.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
            raise ValueError(f"A site's greeting has no name of 1 to {_MAX_NAME} printable characters.")
        check_protocol(record.get("protocol"), name, "the coordinator")
        client, samples = record.get("client"), record.get("samples")
        if not is_int(client) or client < 0:
            raise ValueError(f"{name} sends no site number, counted from 0.")
        if not is_int(samples) or not 0 <= samples < MAX_COUNT:
            raise ValueError(f"{name} sends no number of samples.")
        if samples == 0:
            raise ValueError(f"{name} has no sample to train with.")
        key, signature = _hex(record, "mask key", _MASK_KEY), _hex(record, "mask signature", _MAX_SIGNATURE)
        if key is None or signature is None or len(key) not in (0, _MASK_KEY):
            raise ValueError(f"{name} sends no key for masks that can be used.")
        if not {"side", "channels", "classes", "columns"} & set(record):
            return cls(client, name, samples, mask_key=key, mask_signature=signature)
        columns, classes = record.get("columns"), record.get("classes")
        if columns is not None:
            columns, names = _columns(name, columns), _class_names(name, classes)
            return cls(client, name, samples, None, None, names, key, signature, columns)
        side, channels = record.get("side"), record.get("channels")
        if not is_int(side) or not 1 <= side <= _MAX_SIDE or not is_int(channels) or channels not in (1, 3):
            raise ValueError(f"{name} sends no image size that can be used.")
        return cls(client, name, samples, side, channels, _class_names(name, classes), key, signature)


def _class_names(site: str, classes: object) -> tuple[str, ...]:
    """Check the class names of a greeting and return them; raise a ValueError if they are invalid."""
    if not isinstance(classes, list) or not 0 < len(classes) <= _MAX_CLASSES:
        raise ValueError(f"{site} sends no list of 1 to {_MAX_CLASSES} classes.")
    names = tuple(each for each in classes if isinstance(each, str) and _is_class_name(each))
    if len(names) != len(classes) or len(set(names)) != len(names):
        raise ValueError(f"{site} sends a class without a unique, printable name.")
    return names


def _columns(site: str, text: object) -> str:
    """Check the description of columns in a greeting and return it; raise a ValueError if it is invalid."""
    try:
        if isinstance(text, str) and parse_columns(text):
            return text
    except UserError as error:
        raise ValueError(f"{site} sends columns that cannot be used: {error.sentence}") from error
    raise ValueError(f"{site} sends columns that cannot be used.")


def _is_class_name(name: str) -> bool:
    return 0 < len(name) <= _MAX_CLASS_NAME and name.isprintable()


def _hex(record: ConfigRecord, name: str, most: int) -> bytes | None:
    """Return a hexadecimal field of a record as bytes: b"" if it is missing, None if it is invalid or too long."""
    text = record.get(name, "")
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and len(found) <= most else None


class SitesFile:
    """A file with the greetings of a run's sites, so that a resumed run knows sites that are not connected.

    Args:
        path: The file; None to store nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def read(self) -> dict[int, SiteInfo]:
        """Return the greetings by site number; empty if there is no file.

        Raises:
            UserError: If the file is damaged.
        """
        if self._path is None or not self._path.exists():
            return {}
        try:
            greetings = parse_json(read_regular(self._path, _MAX_BYTES, follow=False).decode())
            sites = [SiteInfo.decode(RecordDict({_GREETING: ConfigRecord(dict(each))})) for each in greetings]
        except (OSError, ValueError, TypeError, KeyError, AttributeError, UserError) as error:
            raise UserError(f"{self._path} is damaged ({error}).", "delete it; the sites send it again") from error
        return {site.client: site for site in sites}

    def write(self, sites: Mapping[int, SiteInfo]) -> None:
        """Write the greetings of all sites."""
        if self._path is not None:
            greetings = [sites[client].fields() for client in sorted(sites)]
            atomic.atomic_write(self._path, json.dumps(greetings, indent=1) + "\n")
