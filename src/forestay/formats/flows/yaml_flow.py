"""Flows in YAML: all errors are reported at once, with line and column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from forestay.domain.flows.definition.flow import Flow, all_tasks
from forestay.domain.flows.definition.flow_problem import FlowProblem
from forestay.domain.flows.definition.flow_version import flow_as_plain, version_of
from forestay.formats.flows.flow_json import check_document, flow_to_json
from forestay.formats.text.yaml_text import YamlDocument, read_yaml


class TextProblem(NamedTuple):
    """One error in a flow's text."""

    line: int
    column: int
    where: str
    """The path in the document: ``tasks.align.command[2]``."""
    message: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.where}: {self.message}" if self.where else f"{self.line}:{self.column}: {self.message}"  # fmt: skip


def text_problems(document: YamlDocument, findings: Iterable[FlowProblem]) -> tuple[TextProblem, ...]:
    """The errors in a text's contents, each with its position, in the order of the text."""
    return tuple(
        sorted(TextProblem(*document.position(finding.path), finding.where, finding.message) for finding in findings)
    )


@dataclass(frozen=True, slots=True)
class FlowText:
    """The result of reading a flow's text: a flow, or problems."""

    flow: Flow | None
    problems: tuple[TextProblem, ...] = ()
    text: str = ""

    @property
    def version(self) -> str:
        """The content hash of a valid flow; empty otherwise."""
        return version_of(self.flow) if self.flow is not None else ""

    @property
    def plain(self) -> Mapping[str, Any]:
        """A valid flow in its plain form."""
        return flow_as_plain(self.flow) if self.flow is not None else {}

    @property
    def tasks(self) -> int:
        """The number of tasks of a valid flow, including those inside loops and choices."""
        return sum(1 for _ in all_tasks(self.flow.tasks)) if self.flow is not None else 0


def read_flow_text(text: str) -> FlowText:
    """Read and check a flow written in YAML (or JSON, which is YAML)."""
    document = read_yaml(text)
    findings = list(document.findings)
    flow: Flow | None = None
    if not findings:
        flow, findings = check_document(document.value)
    return FlowText(flow, text_problems(document, findings), text)


def write_flow_text(flow: Flow) -> str:
    """A flow as YAML; defaults are left out."""
    text: str = yaml.safe_dump(flow_to_json(flow), sort_keys=False, allow_unicode=True, width=120)
    return text
