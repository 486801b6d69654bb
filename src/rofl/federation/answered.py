"""The requests that a site has answered; it answers for few models each, so that repeated requests reveal no sample.

A coordinator that was killed asks for a round again, mostly with the same model; then the same answer leaves. Each
other model is another question about the same samples. With masks a sum is unmasked for one model only (`SiteMasks`).
"""

import json
from pathlib import Path

from pydantic import TypeAdapter

from rofl.data import atomic
from rofl.federation.agreement import read_kept
from rofl.federation.protocol import Refusal

MOST_MODELS = 5  # for which a request is answered: a coordinator may be killed before its checkpoint more than once
_MAX_BYTES = 2**24
_FORM = TypeAdapter(dict[str, list[str]])


class AnsweredRequests:
    """The questions that a site has answered, by their purpose, in a file.

    Args:
        path: The file; None to remember them in this process only.

    Raises:
        UserError: If the file is damaged.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._asked = read_kept(path, _FORM.validate_json, "what was answered", _MAX_BYTES) or {}

    def admit(self, purpose: str, question: str, most: int) -> None:
        """Note a question that is about to be answered.

        Args:
            purpose: What is asked, such as "train 7".
            question: A hash of all that the answer depends on.
            most: How many different questions for one purpose are answered.

        Raises:
            Refusal: If more were asked.
        """
        asked = self._asked.setdefault(purpose, [])
        if question in asked:
            return
        if len(asked) >= most:
            raise Refusal(f"The coordinator asks for {purpose} with yet another model, after {len(asked)} before.")
        asked.append(question)
        if self._path is not None:
            atomic.atomic_write(self._path, json.dumps(self._asked), 0o600)
