"""A site's greeting: its name and number, and a description of its data.

It is written and read here only. What arrives is checked for types, ranges and lengths; a greeting that fails raises an
error with one sentence, and the coordinator goes on without that site.
"""

from dataclasses import dataclass

from flwr.app import ConfigRecord, RecordDict

from rofl.data.user.shared_columns import parse_columns
from rofl.errors import UserError
from rofl.federation.protocol import PROTOCOL, check_protocol, is_int
from rofl.federation.tensor_records import MAX_COUNT

_GREETING = "site"  # the record's name, as in 0.1
_MAX_NAME = 100  # characters
_MAX_CLASSES, _MAX_CLASS_NAME = 10_000, 255
_MAX_SIDE = 1024  # pixels
_MASK_KEY, _MAX_SIGNATURE = 32, 200  # bytes


@dataclass(frozen=True)
class SiteInfo:
    """The greeting: a site's name and number, and a description of its data.

    Attributes:
        client: Its number among all sites, counted from 0.
        name: Its name, for people.
        samples: How many samples it trains with.
        side: Pixels of its square images; None where the settings name the data set.
        channels: 1 for grey images, 3 for colours; None where the settings name the data set.
        classes: The names of its classes; empty where the settings name the data set.
        mask_key: Its public key for masks (`rofl.federation.masking`); empty where it cannot mask.
        mask_signature: Its signature of that key; empty without credentials.
        columns: What it says of the columns of its table, or of its texts: an encoder as JSON; "" for images.
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
        """Return what travels, by name; `rofl join --dry-run` lists it."""
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
            known_name: The site's name by its key; "" to believe what it says.

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
            raise ValueError(f"{name} sends no number of its own, counted from 0.")
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
    """Return the names of a site's classes; a ValueError says what is wrong with them."""
    if not isinstance(classes, list) or not 0 < len(classes) <= _MAX_CLASSES:
        raise ValueError(f"{site} sends no list of 1 to {_MAX_CLASSES} classes.")
    names = tuple(each for each in classes if isinstance(each, str) and _is_class_name(each))
    if len(names) != len(classes) or len(set(names)) != len(names):
        raise ValueError(f"{site} sends a class that has no name of its own.")
    return names


def _columns(site: str, text: object) -> str:
    """Return what a site says of its columns; a ValueError says what is wrong with it."""
    try:
        if isinstance(text, str) and parse_columns(text):
            return text
    except UserError as error:
        raise ValueError(f"{site} sends columns that cannot be used: {error.sentence}") from error
    raise ValueError(f"{site} sends columns that cannot be used.")


def _is_class_name(name: str) -> bool:
    return 0 < len(name) <= _MAX_CLASS_NAME and name.isprintable()


def _hex(record: ConfigRecord, name: str, most: int) -> bytes | None:
    """Return bytes that a record has as hexadecimal text: b"" where it has none, None where they cannot be used."""
    text = record.get(name, "")
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and len(found) <= most else None
