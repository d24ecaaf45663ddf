"""What a domain writes, in order: for each job or incident the writes that concern it, so that two versions of the code can be compared.

The order between different jobs is not kept: batches may be cut differently, and what runs at the same time has no order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from forestay.domain.exceptions.incidents.incident import IncidentStatus
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import Written

RULES = "rules"
"""How the names of documents begin that are written with rules: they are no part of what is compared."""
FOLLOWS = frozenset({"fingerprint", "title"})
"""Of a status: they follow from the incident, which is compared."""
Subjects = Callable[[Any], Sequence[tuple[str, object]]]
"""From what is written to the names of what it is about, each with its content."""


def plain(value: object) -> Any:
    """Any value of the domain as JSON has it."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        left_out = FOLLOWS if isinstance(value, IncidentStatus) else frozenset()
        return {item.name: plain(getattr(value, item.name)) for item in fields(value) if item.name not in left_out}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(content) for name, content in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(content) for name, content in value.items()}
    if isinstance(value, frozenset | set):
        return sorted((plain(content) for content in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(content) for content in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


@dataclass(slots=True)
class Recorder:
    """The writes of one run."""

    lose_one_in: int = 0
    """Of so many subjects the first acknowledgement of each kind of write is lost; 0: none."""
    lines: dict[str, list[str]] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    """The job of each incident."""
    lost: set[tuple[str, str]] = field(default_factory=set)

    def note(self, what: str, subject: str, content: object) -> None:
        if subject.startswith(RULES):
            return
        subject = self.about.get(subject, subject)
        text = json.dumps(plain(content), sort_keys=True, ensure_ascii=False)
        self.lines.setdefault(subject, []).append(f"{what} {text}")

    def lose(self, what: str, subjects: Sequence[str]) -> None:
        """Fail as a store does whose answer is lost, once for each that was chosen by its name alone."""
        for subject in subjects:
            if (what, subject) in self.lost or not self.lose_one_in:
                continue
            number = int.from_bytes(hashlib.sha256(f"{what} {subject}".encode()).digest()[:4])
            if number % self.lose_one_in == 0:
                self.lost.add((what, subject))
                raise Transient(f"the acknowledgement of {what} was lost")


class RecordedStore:
    """A store whose writes are recorded as they are acknowledged."""

    def __init__(self, inner: Any, name: str, recorder: Recorder, writes: Mapping[str, Subjects]) -> None:
        self._inner = inner
        self._name = name
        self._recorder = recorder
        self._writes = writes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._writes:
            return found
        return self._recorded(name, found, self._writes[name])

    def _recorded(self, name: str, write: Callable[[Any], Awaitable[Any]], read: Subjects) -> Any:
        what = f"{self._name}.{name}"

        async def recorded(written: Any) -> Any:
            answer = await write(written)
            subjects = read(written)
            results = answer if isinstance(answer, Sequence) else [answer] * len(subjects)
            for (subject, content), result in zip(subjects, results, strict=True):
                if result is True or isinstance(
                    result, Written
                ):  # what changed nothing may be tried more or less often
                    self._recorder.note(what, subject, content)
            self._recorder.lose(what, [subject for subject, _ in subjects])
            return answer

        return recorded


def job_writes() -> Mapping[str, Subjects]:
    return {
        "write": lambda changes: [(change.document.id, change.document) for change in changes],
        "add_records": lambda records: [(record.job or record.id, record) for record in records],
    }


def incident_writes(recorder: Recorder) -> Mapping[str, Subjects]:
    def incidents(added: Any) -> Sequence[tuple[str, object]]:
        for incident, _ in added:
            if incident.job:
                recorder.about[incident.id] = incident.job
        return [(incident.id, (incident, status)) for incident, status in added]

    return {
        "add_incidents": incidents,
        "put_statuses": lambda statuses: [(status.id, status) for status, _ in statuses],
        "add_decisions": lambda decisions: [(decision.incident, decision) for decision in decisions],
        "add_steps": lambda steps: [(step.incident, step) for step in steps],
    }


def document_writes() -> Mapping[str, Subjects]:
    def bodies(documents: Any) -> Sequence[tuple[str, object]]:
        # By random names a storm's writer knows what it has counted.
        return [
            (document.id, {name: value for name, value in document.body.items() if name != "counted"})
            for document, _ in documents
        ]

    return {"put": bodies}


def audit_writes() -> Mapping[str, Subjects]:
    # Numbers, times and hashes follow from the order between jobs, which is not kept.
    return {
        "add": lambda page: [
            (entry.on or page.tenant, (entry.by, entry.what, entry.on, entry.why, entry.detail))
            for entry in page.entries
        ]
    }
