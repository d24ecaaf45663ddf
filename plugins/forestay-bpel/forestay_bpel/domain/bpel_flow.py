"""A flow written as a WS-BPEL process: a run is pinned to the process, its job definitions and its mapping, and carries them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forestay_bpel.domain.bpel.process import Pick, Process, Receive, every
from forestay_bpel.domain.bpel.reading import read_process
from forestay_bpel.domain.bpel.services import Services, read_services
from forestay_bpel.domain.jsdl.job import task_name
from forestay_bpel.domain.xml_tree import XmlElement, as_plain, from_plain
from forestay_bpel.domain.xml_writing import write_xml

LANGUAGE = 1
MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class BpelFlow:
    """A process with what it needs."""

    root: XmlElement
    wsdls: tuple[XmlElement, ...] = ()
    jobs: Mapping[str, XmlElement] = field(default_factory=dict)
    """Job definitions by the name that messages use."""
    services: Services = field(default_factory=Services)
    description: str = ""

    @property
    def name(self) -> str:
        return task_name(self.root.get("name")).replace("-", "_")

    @property
    def params(self) -> Mapping[str, object]:
        """The parts of the message that begins a run."""
        return {"message": {}}

    @property
    def needed(self) -> tuple[str, ...]:
        return ()

    @property
    def version(self) -> str:
        """The hash of its content."""
        return hashlib.sha256(json.dumps(self.as_plain(), sort_keys=True).encode()).hexdigest()

    def as_plain(self) -> dict[str, Any]:
        return {
            "forestay": LANGUAGE,
            "name": self.name,
            "bpel": as_plain(self.root),
            "wsdl": [as_plain(wsdl) for wsdl in self.wsdls],
            "jobs": {name: as_plain(job) for name, job in self.jobs.items()},
            "services": dict(self.services.plain),
        }

    def text(self) -> str:
        return write_xml(self.root)

    def refusal(self, params: Mapping[str, object]) -> str:
        """The errors in the message that is to begin a run."""
        try:
            message_from_plain(params.get("message", {}))
        except ValueError as error:
            return f"message: {error}"
        return ""

    def process(self) -> Process:
        """The process; it was read before, so that nothing in it is refused."""
        process = read_process(self.root, self.wsdls).process
        if process is None:
            raise ValueError("the process was refused")
        return process


def bpel_from_plain(plain: Mapping[str, Any]) -> BpelFlow:
    return BpelFlow(
        from_plain(plain["bpel"]),
        tuple(from_plain(document) for document in plain.get("wsdl", ())),
        {name: from_plain(job) for name, job in plain.get("jobs", {}).items()},
        read_services(plain.get("services") or None),
    )


def message_from_plain(plain: object) -> dict[str, XmlElement]:
    """A message by its parts: each an element in its plain form, or a text. `ValueError` for anything else."""
    if not isinstance(plain, Mapping):
        raise ValueError("a message must be an object with its parts")  # noqa: TRY004 - one error for whatever is wrong
    parts: dict[str, XmlElement] = {}
    for name, part in plain.items():
        if isinstance(part, str | int | float):
            parts[name] = XmlElement(name, {}, [str(part)] if part != "" else [])
        elif isinstance(part, list) and _is_element(part, 0):
            parts[name] = from_plain(part)
        else:
            raise ValueError(f"part {name[:100]} is neither a text nor an element in its plain form")
    return parts


def _is_element(plain: object, depth: int) -> bool:
    if not isinstance(plain, list) or len(plain) != 5 or depth > MAX_DEPTH:
        return False
    tag, attributes, line, spaces, inner = plain
    return (
        isinstance(tag, str)
        and bool(tag)
        and _texts(attributes)
        and isinstance(line, int)
        and (spaces is None or _texts(spaces))
        and isinstance(inner, list)
        and all(isinstance(child, str) or _is_element(child, depth + 1) for child in inner)
    )


def _texts(plain: object) -> bool:
    return isinstance(plain, dict) and all(isinstance(text, str) for pair in plain.items() for text in pair)


def first_message(process: Process) -> tuple[str, str]:
    """The partner link and the operation that begin an instance."""
    for activity in every(process.scope):
        if isinstance(activity, Receive) and activity.create:
            return activity.partner, activity.operation
        if isinstance(activity, Pick) and activity.create:
            return activity.messages[0].partner, activity.messages[0].operation
    return "", ""
