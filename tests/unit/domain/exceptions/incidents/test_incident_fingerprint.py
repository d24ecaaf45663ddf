"""Which error an incident is: from what was found and seen of a job's failure, from the type of any other exception."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident, IncidentStatus, fingerprint_of, status_of
from forestay.formats.rules.incident_json import from_document, to_document


def _failed(line: str = "boom at 0x1f", *, cause: str = "code", instance: str = "", **context: Any) -> Incident:
    context = {"finding": {"pattern": "p", "lines": [line]}, "job": {"name": "align_7"}, **context}
    return Incident("i", "t", "ada", ExceptionType.ABORT, 5, cause=cause, instance=instance, context=context)


def test_a_new_status_has_it() -> None:
    status = status_of(_failed())
    assert status.title == "boom at <hex>"
    assert status.fingerprint == status_of(_failed("boom at 0x2a", job={"name": "align_8"})).fingerprint
    assert status.moved(status.state, now=6).fingerprint == status.fingerprint


def test_the_line_the_task_and_the_cause_tell_errors_apart() -> None:
    ids = {
        fingerprint_of(incident).id
        for incident in (
            _failed(),
            _failed("bang"),
            _failed(cause="node"),
            _failed(instance="loop@2/sort"),
            _failed(job={"name": "sort it"}),
        )
    }
    assert len(ids) == 5
    assert fingerprint_of(_failed(instance="loop@2/sort")).task == "sort"
    assert fingerprint_of(_failed(exception={"task": "merge"}, instance="x")).task == "merge"


@pytest.mark.parametrize(
    ("kind", "exception", "title"),
    [
        (ExceptionType.TIMEOUT, {"task": "align"}, "timeout"),
        (ExceptionType.TASK_EXTERNAL, {"task": "align", "trigger": "pressure too high"}, "task-external: pressure too high"),
    ],
)  # fmt: skip
def test_another_exception_is_known_by_its_type(kind: ExceptionType, exception: dict[str, str], title: str) -> None:
    incident = Incident("i", "t", "ada", kind, 5, context={"exception": exception})
    assert (fingerprint_of(incident).title, fingerprint_of(incident).task) == (title, "align")
    assert fingerprint_of(Incident("i", "t", "ada", kind, 5, context={"exception": "odd", "finding": 3})).line == kind


def test_a_status_that_was_stored_without_it_is_read() -> None:
    status = status_of(_failed())
    assert from_document(IncidentStatus, to_document(status)) == status
    older = {name: value for name, value in to_document(status).items() if name not in ("fingerprint", "title")}
    read = from_document(IncidentStatus, older)
    assert (read.fingerprint, read.title, read.id) == ("", "", "i")
