"""How an action is undone, registered in the compensation library and not in a flow.

It is independent of the flows whose tasks it undoes, so it refers to what every task has: the parameters of its run (``${params.slot}``), the run itself
(``${run}``), the task's results (``${task.result.id}``, ``${task.exit_code}``, ``${task.outputs.report}``), and, of a scatter, the element's variables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from forestay.domain.flows.definition.expression import BadExpression, Path, template_references
from forestay.domain.flows.definition.flow import Compensation
from forestay.domain.flows.definition.flow_plan import job_texts
from forestay.domain.flows.definition.flow_problem import FlowProblem
from forestay.domain.flows.definition.flow_version import job_as_plain, job_from_plain
from forestay.domain.flows.definition.job_check import check_job

ACTION = r"[A-Za-z0-9._-]{1,100}(:[A-Za-z0-9._-]{1,100})?"
"""The name of an action, or of a task of a flow: ``flow:task``."""
MAX_DESCRIPTION = 1000
_OF_TASK = ("result", "exit_code", "outputs")
_OF_FLOWS = frozenset({"tasks", "previous", "iteration"})


@dataclass(frozen=True, slots=True)
class RegisteredCompensation:
    """An entry of the library."""

    action: str
    compensation: Compensation
    description: str = ""


def registered_as_plain(registered: RegisteredCompensation) -> dict[str, Any]:
    """As JSON types; defaults are left out."""
    described = {"description": registered.description} if registered.description else {}
    return {"action": registered.action, **described, **_as_plain(registered.compensation)}


def registered_from_plain(data: Mapping[str, Any]) -> RegisteredCompensation:
    return RegisteredCompensation(
        data["action"], Compensation(job_from_plain(data), data["tries"]), data.get("description", "")
    )


def registered_version(registered: RegisteredCompensation) -> str:
    """The digest of what is run, without its action and description."""
    text = json.dumps(_as_plain(registered.compensation), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def _as_plain(compensation: Compensation) -> dict[str, Any]:
    return {**job_as_plain(compensation.job), "tries": compensation.tries}


def check_registered(registered: RegisteredCompensation) -> list[FlowProblem]:
    """All errors of an entry."""
    return list(_problems(registered))


def _problems(registered: RegisteredCompensation) -> Iterator[FlowProblem]:
    job = registered.compensation.job
    if not re.fullmatch(ACTION, registered.action):
        yield FlowProblem(("action",), "name the action: letters, digits, '.', '_' and '-', or a task as FLOW:TASK")
    if len(registered.description) > MAX_DESCRIPTION:
        yield FlowProblem(("description",), f"a description has at most {MAX_DESCRIPTION} characters")
    yield from check_job(job, ())
    if not job.wait:
        yield FlowProblem(("wait",), "a run always waits for a compensation; remove this")
    if not 1 <= registered.compensation.tries <= 100:
        yield FlowProblem(("tries",), "a compensation is tried 1 to 100 times")
    for text in job_texts(job):
        try:
            paths = list(template_references(text))
        except BadExpression as error:
            yield FlowProblem((), f"{text!r}: {error}")
            continue
        for path in paths:
            yield from _reference(path)


def _reference(path: Path) -> Iterator[FlowProblem]:
    shown = "${" + ".".join(path) + "}"
    if path[0] in _OF_FLOWS:
        words = "a compensation of the library knows no other tasks; use ${task.result}, ${task.outputs.NAME} or ${params.NAME}"
        yield FlowProblem((), f"{shown}: {words}")
    elif path[0] == "task" and path[1:2] not in [(name,) for name in _OF_TASK]:
        yield FlowProblem((), f"{shown}: of its task a compensation knows {', '.join(_OF_TASK)}")
