"""A list of images: CSV or parquet with the columns path and label, and client and part where wanted."""

import os
import posixpath
from pathlib import Path

from rofl.data.user import columns as c
from rofl.data.user.names import list_some, plural
from rofl.data.user.samples import Listing, Sample
from rofl.errors import UserError


def read_manifest(path: Path, columns: c.Columns) -> Listing:
    """The images of a manifest; their paths are relative to its folder, and may not lead out of it."""
    root = path.parent.resolve()
    labels, names = c.required(path, columns, "label"), c.required(path, columns, "path")
    entries: dict[str, Sample] = {}
    repeated, absent = [], []
    rows = zip(names, labels, c.clients(path, columns), c.tests(path, columns), strict=True)
    for row, (name, label, client, test) in enumerate(rows, start=1):
        plain = posixpath.normpath(name if "/" in name else name.replace("\\", "/"))
        file = root / plain
        if "\0" in plain or posixpath.isabs(plain) or not Path(os.path.realpath(file)).is_relative_to(root):
            raise UserError(
                f"Row {row} of {path} leads out of {path.parent}: {name}.", "paths below the manifest's folder"
            )
        known, entry = entries.get(plain), Sample(plain, label, client, test, file)
        if known is None:
            entries[plain] = entry
            absent += [] if os.path.isfile(file) else [plain]
        elif (known.label, known.client, known.test) == (label, client, test):
            repeated.append(plain)
        else:
            raise UserError(f"Row {row} of {path} names {name} again, with another label, client or part.", "one row")
    if absent:
        raise UserError(
            f"{len(absent)} of {len(entries)} files that {path} names are not there: {list_some(absent, 1)}."
        )
    told = f"Left out, since it repeats an image: {plural(len(repeated), 'row')} of {path.name}."
    notes = [told] if repeated else []
    return Listing(list(entries.values()), notes)
