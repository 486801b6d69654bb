"""A check that worker processes can import the user's classes: methods, models and others.

A worker unpickles its configuration, which its own parent sends over a private pipe. Pickle names classes and functions
by module, so that those of a script (`__main__`), a notebook or a function body cannot be found in another process.
"""

import io
import pickle

from rofl.errors import UserError

_HINT = "put it into a module that can be imported, or use workers=0"


class _Checker(pickle.Pickler):
    """A pickler that refuses classes and functions of `__main__`, which pickle itself accepts."""

    def persistent_id(self, obj: object) -> None:
        if getattr(obj, "__module__", None) == "__main__" and (name := getattr(obj, "__qualname__", None)):
            raise UserError(f"Worker processes cannot import {name}, which a script or notebook defines.", _HINT)


def check_importable(*objects: object) -> None:
    """Raise a UserError if another process could not unpickle these objects.

    Raises:
        UserError: a class or function is defined in `__main__`, or inside a function.
    """
    try:
        _Checker(io.BytesIO()).dump(objects)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UserError(f"The run cannot be sent to worker processes ({error}).", _HINT) from error
