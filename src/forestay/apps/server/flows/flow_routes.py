"""Routes for flows: store, read, and suspend or command all of their runs at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import Field

from forestay.apps.server.http.answers import Out, errors
from forestay.apps.server.http.approvals import WAITS, alone, ask, verb_act
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Operator, RequestContext, Submitter, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Holder, Id, Model, PlainValue, Reason
from forestay.apps.server.jobs.schemas import ContinueIn
from forestay.domain.flows.definition.flow import Flow, all_tasks
from forestay.domain.flows.definition.flow_pattern import JobPattern
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.flow_suspension import FlowSuspension
from forestay.formats.flows.yaml_flow import read_flow_text, write_flow_text
from forestay.formats.text.yaml_text import MAX_BYTES
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.ports.operations.identity import Principal
from forestay.services.scheduling.requirement_matcher import RequirementMatcher

router = Router(prefix="/v1", tags=["runs"])
Version = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FlowName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]


SteeringVerb = Literal[
    VerbKind.REDO, VerbKind.SKIP, VerbKind.REPLACE, VerbKind.RESTART, VerbKind.SUSPEND, VerbKind.CONTINUE, VerbKind.FORCE_COMPLETE,
    VerbKind.FORCE_FAIL, VerbKind.REMOVE, VerbKind.RAISE, VerbKind.SET_DATA,
]  # fmt: skip
"""All verbs but the answer to a question, which has a route that checks who may answer."""


FlowText = Annotated[str, Field(min_length=1, max_length=MAX_BYTES)]


class FlowIn(Model):
    text: FlowText
    """The flow in YAML or JSON."""


class FlowOut(Out):
    version: str
    name: str


class PassedOut(Out):
    id: str
    verb: str
    task: str


class PythonFlowOut(FlowOut):
    params: dict[str, Any]
    needed: list[str]
    """The parameters that a run must give."""
    description: str


class PythonFlowsOut(Out):
    flows: list[PythonFlowOut]
    problems: list[str]
    """The errors in files of the folder."""


class FlowSuspensionOut(Out):
    holders: list[str]
    verbs: list[PassedOut]
    """Verbs that not every run has received yet."""


class FlowWholeOut(FlowOut, FlowSuspensionOut):
    text: str
    """The flow in YAML; for a Python flow its source, for a process its XML."""
    order: dict[str, list[str]]
    """Each task with its predecessors; for a Python flow or a process they are in the tasks of a run."""


class FlowVerbOut(FlowSuspensionOut):
    id: str


class FlowVerbIn(Model):
    verb: SteeringVerb
    task: Annotated[str, Field(max_length=500)] = ""
    id: Id | None = None
    """The same in every repetition; generated if left out."""
    reason: Reason = ""
    holder: Holder | None = None
    changes: dict[Annotated[str, Field(max_length=100)], PlainValue] = Field(default_factory=dict, max_length=100)
    only_failed: bool = False
    """For a scatter that has ended: succeeded elements stay as they are."""


def flow_version(text: str) -> str:
    if re.fullmatch(r"[0-9a-f]{64}", text) is None:
        raise HttpProblem(404, f"there is no flow {text[:64]}")
    return text


def flow_of_text(text: str) -> Flow:
    """The flow in the text of a request; 422 with all errors if it is invalid."""
    read = read_flow_text(text)
    if read.flow is None:
        wrong = [
            {"at": f"body.text:{problem.line}:{problem.column}", "detail": str(problem)}
            for problem in read.problems[:100]
        ]
        raise HttpProblem(422, f"the flow has {len(read.problems)} error(s)", wrong)
    return read.flow


def _with_inner(flow: Flow) -> Iterator[Flow]:
    yield flow
    for inner in flow.flows.values():
        yield from _with_inner(inner)


def check_requirements(flow: Flow, requirements: RequirementMatcher) -> None:
    """422 with all errors in the jobs' requirements on pilots."""
    jobs = [
        (task.name, job)
        for known in _with_inner(flow)
        for task in all_tasks(known.tasks)
        for job in (task.pattern, task.compensation.job if task.compensation else None)
        if isinstance(job, JobPattern) and job.requires
    ]
    wrong = [
        {"at": f"tasks.{name}.requires", "detail": str(problem)}
        for name, job in jobs
        for problem in requirements.problems(job.requires)
    ]
    if wrong:
        raise HttpProblem(422, f"the flow has {len(wrong)} error(s)", wrong[:100])


def engine_of(context: RequestContext) -> FlowEngine:
    engine = context.services.components.engine
    if engine is None:
        # Not 503: waiting does not help.
        raise HttpProblem(
            501,
            "flows are not available: this server was started without Temporal; `forestay doctor` says how to get it",
        )
    return engine


def verb_of(context: RequestContext, who: Principal, body: FlowVerbIn) -> Verb:
    return Verb(
        at=context.services.components.clock.now(),
        id=body.id or context.services.components.ids.claim(),
        kind=body.verb,
        instance=body.task,
        by=who.subject,
        holder=body.holder or who.subject,
        reason=body.reason,
        changes=dict(body.changes),
        only_failed=body.only_failed,
    )


def _suspension(suspension: FlowSuspension) -> dict[str, object]:
    verbs = [{"id": order.id, "verb": order.kind.value, "task": order.instance} for order in suspension.orders]
    return {"holders": list(suspension.holders), "verbs": verbs}


@router.post("/flows", status_code=201, response_model=FlowOut, responses=errors(body=True))
async def store_flow(context: TheDesk, who: Submitter, body: FlowIn) -> Response:
    """Check a flow and store it; the answer is its version, the hash of its content."""
    flow = flow_of_text(body.text)
    check_requirements(flow, context.services.requirements)
    version = await context.services.components.flows.put(flow, tenant=who.tenant)
    return json_answer({"version": version, "name": flow.name}, 201)


@router.get("/flows", response_model=PythonFlowsOut, responses=errors())
async def python_flows(context: TheDesk, who: Viewer) -> Response:
    """The Python flows in the operator's folder, which are started by their names."""
    folder = context.services.components.folder
    flows = [
        {
            "name": flow.name,
            "version": flow.version,
            "params": dict(flow.params),
            "needed": list(flow.needed),
            "description": flow.description,
        }
        for flow in folder.flows().values()
    ]
    return json_answer({"flows": flows, "problems": list(folder.problems)})


@router.get("/flows/{version}", response_model=FlowWholeOut, responses=errors(400, 404))
async def read_flow(context: TheDesk, who: Viewer, version: str) -> Response:
    """A stored flow, and who holds all its runs."""
    plan = await context.services.components.flows.plan(who.tenant, flow_version(version))
    suspension = await context.services.suspensions.suspension(who.tenant, version)
    if plan.grown:
        text = (await context.services.components.flows.grown(who.tenant, version)).text()
    else:
        text = write_flow_text(plan.flow)
    order = {name: list(task.before) for name, task in plan.tasks.items()}
    return json_answer(
        {"version": version, "name": plan.flow.name, "text": text, "order": order} | _suspension(suspension)
    )


@router.post("/flows/{version}/suspend", response_model=FlowSuspensionOut, responses=errors(404, 409, body=True))
async def suspend_flow(context: TheDesk, who: Operator, version: str) -> Response:
    """Suspend all runs of a flow, including later ones, by one write; running work may finish."""
    await context.services.components.flows.plan(who.tenant, flow_version(version))
    await context.note(who, "flow.suspend", version)
    return json_answer(_suspension(await context.services.suspensions.suspend(who.tenant, version, who.subject)))


@router.post("/flows/{version}/continue", response_model=FlowSuspensionOut, responses=errors(404, 409, body=True))
async def continue_flow(context: TheDesk, who: Operator, version: str, body: ContinueIn | None = None) -> Response:
    """Remove a suspension of all runs of a flow."""
    await context.services.components.flows.plan(who.tenant, flow_version(version))
    holder = (body.holder if body else None) or who.subject
    await context.note(who, "flow.continue", version, holder=holder)
    return json_answer(_suspension(await context.services.suspensions.let_go(who.tenant, version, holder)))


@router.post("/flows/{version}/verbs", response_model=FlowVerbOut, responses=errors(404, 409, 501, body=True) | WAITS)
async def send_flow_verb(context: TheDesk, who: Operator, version: str, body: FlowVerbIn) -> Response:
    """Steer all runs of a flow. Suspend and continue apply to later runs too, all other verbs to those that have begun."""
    await context.services.components.flows.plan(who.tenant, flow_version(version))
    verb = verb_of(context, who, body)
    if not alone(context, who, verb.kind.value, "task" if verb.instance else "all-runs", owner=""):
        act = verb_act("flow.verb", verb, begun_by=verb.at)
        words = f"{verb.kind} {verb.instance or 'all runs'} of flow {version[:12]}"
        return await ask(context, who, verb.kind.value, version, owner="", why=verb.reason, act=act, words=words)
    await context.note(who, f"flow.{verb.kind}", version, why=verb.reason, task=verb.instance, verb=verb.id)
    suspensions = context.services.suspensions
    if verb.kind in (VerbKind.SUSPEND, VerbKind.CONTINUE) and not verb.instance:
        write = suspensions.suspend if verb.kind is VerbKind.SUSPEND else suspensions.let_go
        suspension = await write(who.tenant, version, verb.holder)
    else:
        engine_of(context)
        suspension = await suspensions.order(who.tenant, version, replace(verb, begun_by=verb.at))
    return json_answer({"id": verb.id} | _suspension(suspension))
