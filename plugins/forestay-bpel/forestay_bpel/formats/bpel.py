"""WS-BPEL processes as texts, with the WSDL, job definitions and mapping that belong to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forestay.formats.text.yaml_text import read_yaml
from forestay_bpel.domain.bpel.adapting import adapt
from forestay_bpel.domain.bpel.process import Invoke, every
from forestay_bpel.domain.bpel.reading import read_process
from forestay_bpel.domain.bpel.report import ImportEntry, ImportReport, ImportStatus
from forestay_bpel.domain.bpel.services import MappingRefused, Services, read_services
from forestay_bpel.domain.bpel_flow import BpelFlow
from forestay_bpel.domain.jsdl.job import NotRunnable, converted_job, task_name
from forestay_bpel.domain.jsdl.reading import JsdlRefused, read_definition
from forestay_bpel.domain.xml_tree import XmlElement, as_plain
from forestay_bpel.formats.xml_text import XmlRefused, read_xml, write_xml

__all__ = [
    "AdaptedText",
    "BpelText",
    "ImportEntry",
    "ImportStatus",
    "XmlRefused",
    "adapt_text",
    "message_plain",
    "read_bpel",
]


@dataclass(frozen=True, slots=True)
class BpelText:
    """The result of reading a process's text: a flow unless something was refused, and the report."""

    flow: BpelFlow | None
    report: ImportReport
    other: tuple[str, ...] = field(default_factory=tuple)
    """The errors in the accompanying files."""
    name: str = ""


def read_bpel(
    text: str | bytes,
    *,
    wsdls: Sequence[str | bytes] = (),
    jobs: Mapping[str, str | bytes] | None = None,
    mapping: str = "",
) -> BpelText:
    """Read a process. Each job definition is available under its file's name and its JobName."""
    report = ImportReport()
    other: list[str] = []
    try:
        root = read_xml(text)
    except XmlRefused as error:
        report.add(error.line, "process", ImportStatus.REFUSED, error.message)
        return BpelText(None, report)
    documents: list[XmlElement] = []
    for place, wsdl in enumerate(wsdls, 1):
        try:
            documents.append(read_xml(wsdl))
        except XmlRefused as error:
            other.append(f"WSDL {place}: {error}")
    elements = _jobs(jobs or {}, report, other)
    services = Services()
    try:
        services = read_services(_mapping(mapping))
    except MappingRefused as error:
        other.append(f"mapping: {error}")
    read = read_process(root, documents)
    read.report.entries += report.entries
    flow = BpelFlow(root, tuple(documents), elements, services)
    if read.process is not None:
        for activity in every(read.process.scope):
            if isinstance(activity, Invoke) and services.binding(activity.partner, activity.operation) is None and activity.operation not in elements:  # fmt: skip
                note = f"no mapping defines {activity.operation} of {activity.partner} is: it ends with the fault unknownOperation"
                read.report.add(activity.std.line, "invoke", ImportStatus.CHANGED, note)
    good = read.process is not None and not other
    return BpelText(flow if good else None, read.report, tuple(other), root.get("name"))


def _mapping(text: str) -> object:
    if not text.strip():
        return None
    read = read_yaml(text)
    if read.findings:
        raise MappingRefused(read.findings[0].message)
    return read.value


def _jobs(files: Mapping[str, str | bytes], report: ImportReport, other: list[str]) -> dict[str, XmlElement]:
    elements: dict[str, XmlElement] = {}
    for name, text in files.items():
        try:
            element = read_xml(text)
            job = converted_job(definition := read_definition(element))
        except XmlRefused as error:
            other.append(f"{name}: {error}")
        except (JsdlRefused, NotRunnable) as error:
            other.append(f"{name}: {error}")
        else:
            elements[name] = element
            elements.setdefault(definition.name or name, element)
            elements.setdefault(task_name(definition.name or name), element)
            for note in job.notes:
                report.add(element.line, f"JSDL {name}", ImportStatus.CHANGED, note)
    return elements


@dataclass(frozen=True, slots=True)
class AdaptedText:
    text: str
    count: int
    """Invokes that go through the proxy."""


def adapt_text(text: str | bytes, links: Sequence[str] = (), address: str = "") -> AdaptedText:
    """Adapt a process so that its invokes go through the proxy. Raises `XmlRefused`."""
    adapted = adapt(read_xml(text), links=links, address=address)
    return AdaptedText(write_xml(adapted.root, indent=False), adapted.count)


def message_plain(message: Mapping[str, str]) -> dict[str, object]:
    """The parts of a message for a run: a text that begins with ``<`` is an element. Raises `XmlRefused`."""
    return {name: as_plain(read_xml(text)) if text.lstrip().startswith("<") else text for name, text in message.items()}
