"""The grammar of JSDL documents as far as they are read here: the position, order and number of elements.

Written from the specification's text, so that no foreign schema is shipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forestay_bpel.domain.jsdl.definition import CONTAINER, HPC, JSDL, LIMITS, POSIX, RANGES
from forestay_bpel.domain.xml_tree import XML, XmlElement

MANY = 10_000
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"


@dataclass(frozen=True, slots=True)
class DocumentError:
    """One error in a document."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.line}: {self.message}"


@dataclass(frozen=True, slots=True)
class ChildRule:
    """An element that may occur in another, and how often."""

    tag: str
    least: int = 0
    most: int = 1


@dataclass(frozen=True, slots=True)
class ElementShape:
    """The permitted content of an element. Its children come in this order, unless ``any_order``."""

    children: tuple[ChildRule, ...] = ()
    attributes: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    text: bool = False
    any_order: bool = False


def _j(name: str) -> str:
    return f"{{{JSDL}}}{name}"


def _shape(space: str, *children: str, attributes: str = "", needed: str = "") -> ElementShape:
    """Children are written ``Name``, ``Name!`` (one), ``Name*`` (any number) or ``Name+``."""
    places = []
    for child in children:
        name, mark = (child[:-1], child[-1]) if child[-1] in "!*+" else (child, "")
        places.append(
            ChildRule(f"{{{space}}}{name}", 1 if mark and mark in "!+" else 0, MANY if mark and mark in "*+" else 1)
        )
    return ElementShape(tuple(places), frozenset((attributes + " " + needed).split()), frozenset(needed.split()))


def _texts(space: str, names: str, attributes: str = "", needed: str = "") -> dict[str, ElementShape]:
    known = frozenset((attributes + " " + needed).split())
    return {
        f"{{{space}}}{text}": ElementShape((), known, frozenset(needed.split()), text=True) for text in names.split()
    }


_RANGE = _shape(JSDL, "UpperBoundedRange", "LowerBoundedRange", "Exact*", "Range*")
_APPLICATION = ElementShape(
    (
        ChildRule(_j("ApplicationName")), ChildRule(_j("ApplicationVersion")), ChildRule(_j("Description")), ChildRule(CONTAINER),
        ChildRule(f"{{{POSIX}}}POSIXApplication"), ChildRule(f"{{{HPC}}}HPCProfileApplication"),
    )
)  # fmt: skip
SHAPES: dict[str, ElementShape] = {
    _j("JobDefinition"): _shape(JSDL, "JobDescription!", attributes="id"),
    _j("JobDescription"): _shape(JSDL, "JobIdentification", "Application", "Resources", "DataStaging*"),
    _j("JobIdentification"): _shape(JSDL, "JobName", "Description", "JobAnnotation*", "JobProject*"),
    _j("Application"): _APPLICATION,
    CONTAINER: ElementShape(text=True),
    _j("Resources"): _shape(
        JSDL, "CandidateHosts", "FileSystem*", "ExclusiveExecution", "OperatingSystem", "CPUArchitecture", *RANGES
    ),
    _j("CandidateHosts"): _shape(JSDL, "HostName+"),
    _j("FileSystem"): _shape(
        JSDL, "FileSystemType", "Description", "MountPoint", "MountSource", "DiskSpace", needed="name"
    ),
    _j("OperatingSystem"): _shape(JSDL, "OperatingSystemType", "OperatingSystemVersion", "Description"),
    _j("OperatingSystemType"): _shape(JSDL, "OperatingSystemName!"),
    _j("CPUArchitecture"): _shape(JSDL, "CPUArchitectureName!"),
    _j("Range"): _shape(JSDL, "LowerBound!", "UpperBound!"),
    _j("DataStaging"): _shape(
        JSDL, "FileName!", "FilesystemName", "CreationFlag!", "DeleteOnTermination", "Source", "Target", attributes="name"
    ),
    _j("Source"): _shape(JSDL, "URI"),
    _j("Target"): _shape(JSDL, "URI"),
    **{_j(name): _RANGE for name in (*RANGES, "DiskSpace")},
    **_texts(JSDL, "JobName JobAnnotation JobProject ApplicationName ApplicationVersion Description HostName FileSystemType"),
    **_texts(JSDL, "MountPoint MountSource ExclusiveExecution OperatingSystemName OperatingSystemVersion CPUArchitectureName"),
    **_texts(JSDL, "FileName FilesystemName CreationFlag DeleteOnTermination URI"),
    **_texts(JSDL, "UpperBoundedRange LowerBoundedRange LowerBound UpperBound", "exclusiveBound"),
    **_texts(JSDL, "Exact", "epsilon"),
    f"{{{POSIX}}}POSIXApplication": _shape(
        POSIX, "Executable", "Argument*", "Input", "Output", "Error", "WorkingDirectory", "Environment*", *LIMITS,
        "UserName", "GroupName", attributes="name",
    ),
    **_texts(POSIX, "Executable Argument Input Output Error WorkingDirectory", "filesystemName"),
    **_texts(POSIX, "Environment", "filesystemName", "name"),
    **_texts(POSIX, " ".join(LIMITS) + " UserName GroupName"),
    f"{{{HPC}}}HPCProfileApplication": _shape(
        HPC, "Executable", "Argument*", "Input", "Output", "Error", "WorkingDirectory", "Environment*", "UserName", attributes="name"
    ),
    **_texts(HPC, "Executable Argument Input Output Error WorkingDirectory UserName"),
    **_texts(HPC, "Environment", "", "name"),
}  # fmt: skip


def check_shape(element: XmlElement) -> Iterator[DocumentError]:
    """All elements that are misplaced, missing, or unknown."""
    shape = SHAPES.get(element.tag)
    if shape is None:
        yield DocumentError(
            element.line, f"{element.name} is not supported; a job that needs it cannot be run as intended"
        )
        return
    for name in element.attributes:
        space = name[1:].partition("}")[0] if name.startswith("{") else ""
        if name not in shape.attributes and space not in (INSTANCE, XML):
            yield DocumentError(element.line, f"{element.name} has no attribute {name.rpartition('}')[2]}")
    for name in shape.needed - element.attributes.keys():
        yield DocumentError(element.line, f"{element.name} needs the attribute {name}")
    if shape.text:
        for child in element.elements:
            yield DocumentError(child.line, f"{element.name} must contain text, not {child.name}")
        return
    if any(isinstance(child, str) and child.strip() for child in element.children):
        yield DocumentError(element.line, f"{element.name} must contain elements, not text")
    yield from _children(element, shape)


def _children(element: XmlElement, shape: ElementShape) -> Iterator[DocumentError]:
    order = {place.tag: number for number, place in enumerate(shape.children)}
    counts = dict.fromkeys(order, 0)
    last = -1
    for child in element.elements:
        number = order.get(child.tag)
        if number is None:
            where = f"{child.name} is not allowed in {element.name}"
            yield DocumentError(child.line, where if child.tag in SHAPES else f"{child.name} in {element.name} is not supported; a job that needs it cannot be run as intended")  # fmt: skip
            continue
        if number < last:
            yield DocumentError(child.line, f"{child.name} occurs too late in {element.name}")
        last = max(last, number)
        counts[child.tag] += 1
        if counts[child.tag] == shape.children[number].most + 1:
            yield DocumentError(child.line, f"{child.name} occurs too often in {element.name}")
        yield from check_shape(child)
    for place in shape.children:
        if counts[place.tag] < place.least:
            yield DocumentError(element.line, f"{element.name} has no {place.tag.rpartition('}')[2]}")
