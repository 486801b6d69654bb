"""CVAT: labels for a new task, and tags in the XML format "CVAT for images 1.1", written and read.

The exported tags have `reviewed` = false. A reviewer ticks it to accept a suggestion, or chooses another class. The tag
of another class counts as reviewed, because true is the attribute's default.
"""

import json
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

from rofl.audit.label_tools.task import Answer, ReviewTask, check_xml_names, sample_of_picture
from rofl.data.atomic import atomic_write
from rofl.errors import UserError

ANNOTATIONS = "annotations.xml"
_REVIEWED = "reviewed"
_FACTS = ("given", "client", "score")  # text attributes of a tag
_LARGEST = 500_000_000  # maximum bytes of an XML file
# Raised for damaged, encrypted or unusual archives; zipfile passes on the errors of its decompressors.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)


def write_cvat(folder: Path, tasks: Sequence[ReviewTask], classes: Sequence[str]) -> Path:
    """Write `cvat-labels.json` for the constructor of a new task, and `annotations.xml` to upload into it.

    Args:
        folder: the folder of the export, which has the pictures.
        tasks: the suspects.
        classes: the classes that a reviewer may choose from.

    Returns:
        The file to upload.
    """
    check_xml_names([*classes, *(task.suspect.client for task in tasks)], "CVAT")
    attributes = [_attribute(_REVIEWED, "checkbox", "true"), *(_attribute(name, "text", "") for name in _FACTS)]
    labels = [{"name": name, "type": "tag", "attributes": attributes} for name in classes]
    atomic_write(folder / "cvat-labels.json", json.dumps(labels, ensure_ascii=False, indent=1) + "\n")
    root = ElementTree.Element("annotations")
    _add(root, "version", "1.1")
    meta = _add(_add(root, "meta"), "task")
    for name, text in (("name", "rofl suspects"), ("size", str(len(tasks))), ("mode", "annotation")):
        _add(meta, name, text)
    listed = _add(meta, "labels")
    for name in classes:
        label = _add(listed, "label")
        _add(label, "name", name)
        _add(label, "type", "tag")
        described = _add(label, "attributes")
        for attribute in attributes:
            one = _add(described, "attribute")
            for key in ("name", "mutable", "input_type", "default_value"):
                _add(one, key, str(attribute[key]))
            _add(one, "values", "\n".join(map(str, attribute["values"])))  # type: ignore[call-overload]
    for number, task in enumerate(tasks):
        _add_image(root, number, task)
    ElementTree.indent(root)
    atomic_write(folder / ANNOTATIONS, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")
    return folder / ANNOTATIONS


def read_cvat(path: Path, samples: Sequence[str]) -> Iterator[Answer]:
    """Yield the answers of a task: the reviewed tags.

    Args:
        path: CVAT's export "CVAT for images 1.1": the zip file, or the XML file in it.
        samples: the names of all samples, to find the sample of a picture.

    Raises:
        UserError: the file has another format, an image was not exported by `write_cvat`, or an image has two classes.
    """
    for image in _parse(path).iter("image"):
        tags = [tag for tag in image.iter("tag") if _value(tag, _REVIEWED).casefold() != "false"]
        labels = list(dict.fromkeys(tag.get("label", "") for tag in tags))
        name = image.get("name", "")
        if not labels:
            continue
        sample = sample_of_picture(name, samples)
        if sample is None:
            raise UserError(f"The image {name!r} of {path} is not one of this run's samples.", "the run it is of")
        if len(labels) > 1:
            raise UserError(f"The image {name!r} of {path} has several classes: {', '.join(labels)}.", "one of them")
        facts = {fact: next(filter(None, (_value(tag, fact) for tag in image.iter("tag"))), "") for fact in _FACTS}
        yield Answer(sample, facts["given"], labels[0], facts["client"])


def _attribute(name: str, kind: str, default: str) -> dict[str, object]:
    return {"name": name, "input_type": kind, "mutable": False, "default_value": default, "values": [default]}


def _add_image(root: ElementTree.Element, number: int, task: ReviewTask) -> None:
    width, height = map(str, task.size)
    suspect = task.suspect
    image = ElementTree.SubElement(root, "image", id=str(number), name=task.picture, width=width, height=height)
    tag = ElementTree.SubElement(image, "tag", label=suspect.suggested, source="auto")
    for name, text in (
        (_REVIEWED, "false"),
        ("given", suspect.given),
        ("client", suspect.client),
        ("score", f"{suspect.score:.4f}"),
    ):
        ElementTree.SubElement(tag, "attribute", name=name).text = text


def _add(parent: ElementTree.Element, name: str, text: str | None = None) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, name)
    child.text = text
    return child


def _value(tag: ElementTree.Element, name: str) -> str:
    return next((each.text or "" for each in tag.iter("attribute") if each.get("name") == name), "")


def _parse(path: Path) -> ElementTree.Element:
    """Parse an XML file, or the one in a zip file; reject a document type, since it may declare entities."""
    try:
        text = _read_xml(path)
        if "<!DOCTYPE" in text.upper():
            raise ValueError("it has a document type")
        root = ElementTree.fromstring(text)
    except (OSError, ValueError, KeyError, ElementTree.ParseError, *_ZIP_ERRORS) as error:
        raise UserError(f"{path} is not a file of CVAT ({error}).", 'its export "CVAT for images 1.1"') from error
    if root.tag != "annotations":
        raise UserError(f"{path} is not a file of CVAT: it begins with <{root.tag}>.", 'its "CVAT for images 1.1"')
    return root


def _read_xml(path: Path) -> str:
    if path.suffix.casefold() != ".zip" and not zipfile.is_zipfile(path):
        if path.stat().st_size > _LARGEST:
            raise ValueError("it is too large")
        return path.read_text(encoding="utf-8")
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo(ANNOTATIONS).file_size > _LARGEST:
            raise ValueError(f"{ANNOTATIONS} is too large")
        with archive.open(ANNOTATIONS) as file:
            return file.read(_LARGEST).decode("utf-8")
