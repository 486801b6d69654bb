"""Names for methods, networks and data sets: built in, from installed packages, or `package.module:name`."""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

from rofl.errors import UserError, unknown

_HINT = "package.module:name, where Python finds it; PYTHONPATH=. for one in this folder"
_Value = TypeVar("_Value")


class Registry(dict[str, _Value], Generic[_Value]):
    """A dictionary of named things that others may add to.

    `find` looks a name up among the built-in entries, then among the entry points that installed packages declare,
    and imports a name of the form `package.module:attribute`.

    Args:
        kind: what the entries are, for error messages, such as "method".
        group: the entry point group of installed packages, such as "rofl.methods".
        built_in: the entries of this package.
    """

    def __init__(self, kind: str, group: str, built_in: Mapping[str, _Value]) -> None:
        super().__init__(built_in)
        self.kind, self.group = kind, group

    def find(self, name: Any) -> _Value:
        """Return the entry of a name.

        Raises:
            UserError: the name is not text, or nothing is found under it; the nearest name is suggested.
        """
        if not isinstance(name, str):
            raise UserError(f"The name of a {self.kind} is text, not {name!r}.", ", ".join(self))
        if name in self:
            return self[name]
        if ":" in name:
            return self._import(name)
        for point in entry_points(group=self.group, name=name):
            return self._load(name, point.load)
        raise unknown(self.kind, name, self.names())

    def names(self) -> list[str]:
        """Return all names: built in, registered, and of installed packages."""
        installed = sorted(point.name for point in entry_points(group=self.group))
        return list(dict.fromkeys([*self, *installed]))

    def _import(self, name: str) -> _Value:
        module, _, attribute = name.partition(":")

        def load() -> object:
            found: object = import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
            return found

        return self._load(name, load)

    def _load(self, name: str, load: Any) -> _Value:
        try:
            return cast(_Value, load())
        except (ImportError, AttributeError, ValueError) as error:
            raise UserError(
                f"The {self.kind} {name!r} cannot be imported ({error}).",
                _HINT,
            ) from error
