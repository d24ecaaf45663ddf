"""Entries of the compensation library in YAML: an action, and the job that undoes it."""

from __future__ import annotations

from typing import NamedTuple

import yaml

from forestay.domain.flows.definition.flow_problem import FlowProblem
from forestay.domain.flows.definition.registered_compensation import (
    RegisteredCompensation,
    check_registered,
    registered_as_plain,
)
from forestay.formats.flows.flow_json import JOB_FIELDS, compensation_of
from forestay.formats.flows.yaml_flow import TextProblem, text_problems
from forestay.formats.text.document_fields import Fields, depth_of
from forestay.formats.text.yaml_text import read_yaml

LANGUAGE = 1
MAX_DEPTH = 20


class CompensationText(NamedTuple):
    """The result of reading a text: an entry, or problems."""

    registered: RegisteredCompensation | None
    problems: tuple[TextProblem, ...] = ()


def read_compensation_text(text: str) -> CompensationText:
    """Read and check an entry written in YAML (or JSON, which is YAML)."""
    document = read_yaml(text)
    findings = list(document.findings)
    registered: RegisteredCompensation | None = None
    if not findings:
        registered, findings = _registered(document.value)
    return CompensationText(registered, text_problems(document, findings))


def write_compensation_text(registered: RegisteredCompensation) -> str:
    """An entry as YAML."""
    data = {"forestay": LANGUAGE, **registered_as_plain(registered)}
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
    return text


def _registered(data: object) -> tuple[RegisteredCompensation | None, list[FlowProblem]]:
    if depth_of(data) > MAX_DEPTH:
        return None, [FlowProblem((), f"it is nested more than {MAX_DEPTH} deep")]
    fields = Fields()
    own = ["forestay", "action", "description"]
    record = fields.record(data, (), [*own, *JOB_FIELDS, "tries"], what="a compensation", needed=["action"])
    if record.get("forestay", LANGUAGE) != LANGUAGE or record.get("forestay") is True:
        fields.wrong(("forestay",), f"add 'forestay: {LANGUAGE}', the version of this language")
    job = {name: value for name, value in record.items() if name not in own}
    registered = RegisteredCompensation(
        action=fields.text(record.get("action", "-"), ("action",)),
        compensation=compensation_of(fields, job, ()),
        description=fields.text(record.get("description", ""), ("description",), empty=True),
    )
    findings = fields.findings or check_registered(registered)
    return (None if findings else registered), list(findings)
