"""Names for methods, networks and data sets: built in, from installed packages, or `package.module:name`."""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from rofl.errors import UserError, unknown

_HINT = "package.module:name, importable by Python; PYTHONPATH=. for a module in this folder"
_TRUST = "PYTHONPATH=. for a module of your own in this folder, or import it before, in Python"
_Value = TypeVar("_Value")


class Registry(dict[str, _Value], Generic[_Value]):
    """A registry of named objects, which other packages can extend.

    `find` looks a name up among the built-in entries, then among the entry points that installed packages declare,
    and imports a name of the form `package.module:attribute`.

    Args:
        kind: the kind of entry for error messages, such as "method".
        group: the entry point group of installed packages, such as "rofl.methods".
        built_in: the entries of this package.
    """

    def __init__(self, kind: str, group: str, built_in: Mapping[str, _Value]) -> None:
        super().__init__(built_in)
        self.kind, self.group = kind, group

    def find(self, name: Any) -> _Value:
        """Return the entry of a name.

        Raises:
            UserError: the name is not text, or unknown; the nearest name is suggested.
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

    def check_file_name(self, name: Any) -> None:
        """Refuse a name that an untrusted file contains, if looking it up could run that file's author's code.

        A run folder or settings file may name an installed package, or a module that the program or the command line
        names as well. It may not name a module in the current folder, where an archive may have been unpacked, nor
        arbitrary functions of the standard library or other packages: `runpy:run_path` would run a file.

        Args:
            name: the name in the file.

        Raises:
            UserError: the name is refused.
        """
        if not isinstance(name, str) or ":" not in name or name in self:
            return
        module = name.partition(":")[0]
        if not (module in sys.modules or any(f"{module}:" in word for word in sys.argv[1:]) or _is_installed(module)):
            raise UserError(f"A file names the {self.kind} {name!r}, which is not installed.", _TRUST)
        found: object = sys.modules.get(module)
        if not _is_library(module):
            found = self._import(name)
        if _is_library(module) or isinstance(found, ModuleType) or not self.is_meant(found):
            raise UserError(f"A file names the {self.kind} {name!r}, which is not one.", "a name that rofl lists")

    def is_meant(self, found: object) -> bool:
        """Return whether an object that a file names is meant as an entry here, as far as can be checked."""
        module = getattr(found, "__module__", None) if hasattr(found, "__qualname__") else None  # a class or function
        return not _is_library(module or "")

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


def _is_library(module: str) -> bool:
    """Return whether a module is part of the standard library."""
    return module.partition(".")[0] in sys.stdlib_module_names


def _is_installed(module: str) -> bool:
    """Return whether a module is installed, i.e. is found outside the current folder and the program's own folder."""
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    if spec is None:
        return True  # the import reports a missing module
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    named = {Path(each).resolve() for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each}
    own = {Path.cwd().resolve(), *([Path(main).resolve().parent] if main else [])} - named
    origins = list(spec.submodule_search_locations or ([spec.origin] if spec.origin else []))
    return not any(Path(each).resolve().parent in own for each in origins)
