"""The export of suspects into a folder for a labelling tool."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rofl.audit.label_tools.cvat import write_cvat
from rofl.audit.label_tools.datalab import write_datalab
from rofl.audit.label_tools.fiftyone_folder import PICTURES, write_fiftyone
from rofl.audit.label_tools.label_studio import write_label_studio
from rofl.audit.label_tools.task import IMAGES, ReviewTask, write_tasks
from rofl.audit.suspect_list import SuspectRow
from rofl.data.federated import FederatedDataset
from rofl.data.originals import find_originals
from rofl.errors import UserError

Tool = Literal["label-studio", "cvat", "fiftyone", "datalab"]
TOOLS: tuple[Tool, ...] = get_args(Tool)

_Writer = Callable[[Path, Sequence[ReviewTask], Sequence[str]], Path]
_WRITERS: dict[Tool, _Writer] = {
    "label-studio": write_label_studio,
    "cvat": write_cvat,
    "fiftyone": write_fiftyone,
}
_IMAGE_TOOLS = ("cvat", "fiftyone")  # these cannot show tables


@dataclass(frozen=True)
class Export:
    """The result of an export."""

    path: Path  # the file or folder that the tool imports
    samples: int  # number of exported samples


def check_export(tool: Tool, folder: Path | None, are_images: bool = True) -> None:
    """Raise a UserError for an export that cannot be written.

    Args:
        tool: the tool that will read the export.
        folder: the folder to create; None if a new, unused folder will be chosen.
        are_images: whether the samples are images, not rows of a table or texts.

    Raises:
        UserError: the folder is not empty or is a file, or the tool cannot show such samples.
    """
    if tool in _IMAGE_TOOLS and not are_images:
        raise UserError(f"{tool} shows images, which these samples are not.", "--export label-studio or datalab")
    if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder.", "another --out")


def export_suspects(tool: Tool, folder: Path, rows: Sequence[SuspectRow], federated: FederatedDataset) -> Export:
    """Write the flagged samples, with their pictures in full size, into a new folder.

    Datalab's tables list all samples and have no pictures.

    Args:
        tool: the tool that will read the export.
        folder: the folder to create.
        rows: the samples of all clients, most suspicious first.
        federated: the data set of the samples.

    Raises:
        UserError: the folder is in use, nothing is flagged, or the tool cannot show such samples.
    """
    check_export(tool, folder, not federated.images.is_table)
    if tool == "datalab":
        return Export(write_datalab(folder, rows), len(rows))
    suspects = [row for row in rows if row.flagged]
    if not suspects:
        raise UserError("No label looks wrong, so there is nothing to review.")
    classes = federated.images.classes
    pictures = folder / (PICTURES if tool == "fiftyone" else IMAGES)
    tasks = write_tasks(pictures, suspects, find_originals(federated))
    return Export(_WRITERS[tool](folder, tasks, classes), len(tasks))
