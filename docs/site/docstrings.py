"""An extension of griffe: examples at the end of a docstring are shown as code."""

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class FencedExamples(Extension):
    """Puts lines that begin with `>>>`, and what they print, between fences."""

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        """Change the docstring of a function, class or module once it is read."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
