"""Routes for exceptions that people raise: the triggers of a run, new exceptions, and playbooks started for an incident."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from forestay.apps.server.flows.flow_routes import engine_of
from forestay.apps.server.flows.run_routes import home_of, run_of_tenant
from forestay.apps.server.http.answers import Out, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Operator, RequestContext, Submitter, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Id, Model, NoNul
from forestay.domain.exceptions.incidents.incident import OWN_ENGINE
from forestay.formats.rules.playbook_json import read_playbook_text
from forestay.ports.errors import Conflict, NotFound
from forestay.ports.exceptions.exception_engine import ExceptionEngine
from forestay.ports.operations.identity import Role
from forestay.services.exceptions.triggers import TriggerRequest, Triggers

router = Router(prefix="/v1", tags=["runs"])
TaskInstance = Annotated[str, Field(max_length=500)]
Words = Annotated[NoNul, Field(max_length=2000)]


class TriggerOut(Out):
    name: str
    words: str
    """What it means, as the author of its rule wrote it."""
    rule: str
    acts: bool
    """Whether a rule that acts answers it, not only a shadow."""


class TriggersOut(Out):
    triggers: list[TriggerOut]


class RaiseIn(Model):
    trigger: Annotated[NoNul, Field(max_length=200)] = ""
    """One of those that are offered;"""
    new: Annotated[NoNul, Field(max_length=200)] = ""
    """or what happened, if none of them says it: the run is suspended, and the administrators are told."""
    task: TaskInstance = ""
    """The task that it concerns; nothing: the run."""
    reason: Words = ""
    """Further details; for a new exception, how it might be handled."""
    id: Id | None = None
    """The same in every repetition; generated if left out."""


class RaisedOut(Out):
    incident: str | None
    """None: no rule answers, and nothing was done."""
    verdict: str
    """``playbook``: a rule concluded; ``hold``: a person is asked; ``ignore``."""
    id: str


class LaunchIn(Model):
    playbook: Annotated[str, Field(max_length=64)] = ""
    """The name of a stored playbook;"""
    text: Annotated[str, Field(max_length=262_144)] = ""
    """or a playbook in YAML or JSON."""


class LaunchedOut(Out):
    incident: str
    outcome: str
    """``begun``, ``done``, or ``refused``."""
    detail: str


def _raising(context: RequestContext, home: ExceptionEngine) -> Triggers:
    parts = context.services.components
    return Triggers(parts.pipeline, home, parts.store, parts.clock)


@router.get("/runs/{run}/triggers", response_model=TriggersOut, responses=errors(404, 501))
async def find_triggers(
    context: TheDesk, who: Viewer, run: str, task: Annotated[str, Query(max_length=500)] = ""
) -> Response:
    """What can be raised for a run, or for one of its tasks: the external triggers in the rule sets that apply."""
    summary = await run_of_tenant(context, run, who)
    offered = await _raising(context, home_of(context, summary)).offered(who.tenant, summary.name, task)
    return json_answer({"triggers": [trigger._asdict() for trigger in offered]})


@router.post("/runs/{run}/triggers", response_model=RaisedOut, responses=errors(404, 409, 501, body=True))
async def raise_trigger(context: TheDesk, who: Submitter, run: str, body: RaiseIn) -> Response:
    """Raise an exception for a run or a task: one that is offered, which its rule answers; or a new one, which suspends the run."""
    summary = await run_of_tenant(context, run, who)
    if summary.owner != who.subject and not who.may(Role.OPERATOR):
        raise HttpProblem(403, f"the run belongs to {summary.owner}; only the owner or an operator may do this")
    if bool(body.trigger) == bool(body.new):
        raise HttpProblem(422, "send either `trigger` or `new`")
    raising = _raising(context, home_of(context, summary))
    name = body.trigger or body.new
    known = {trigger.name for trigger in await raising.offered(who.tenant, summary.name, body.task)}
    if body.trigger and body.trigger not in known:
        raise HttpProblem(409, f"no rule offers {body.trigger!r}; offered: {', '.join(sorted(known)) or 'none'}")
    event = body.id or context.services.components.ids.claim()
    what = TriggerRequest(summary, who.subject, event, name, body.task, body.reason)
    await context.note(who, "run.raise", run, owner=summary.owner, why=body.reason, trigger=name, task=body.task)
    try:
        if name in known:
            answer = await raising.raise_trigger(what)
            body_data = {"incident": answer.incident or None, "verdict": answer.verdict}
        else:
            body_data = {"incident": await raising.raise_new(what), "verdict": "hold"}
    except NotFound as error:
        raise HttpProblem(404, str(error)) from error
    except Conflict as error:
        raise HttpProblem(409, str(error)) from error
    return json_answer(body_data | {"id": event})


@router.post("/incidents/{incident}/playbook", response_model=LaunchedOut, responses=errors(404, 409, 501, body=True))
async def launch_playbook(context: TheDesk, who: Operator, incident: str, body: LaunchIn) -> Response:
    """Carry out a playbook for an incident that waits for a person: a given or a stored one."""
    parts = context.services.components
    found_incident = (await parts.incidents.get_incidents([incident])).get(incident) if len(incident) <= 64 else None
    if found_incident is None or found_incident.tenant != who.tenant:
        raise HttpProblem(404, "there is no such incident")
    if bool(body.playbook) == bool(body.text):
        raise HttpProblem(422, "send either the name of a playbook or its text")
    if body.playbook:
        playbook = (await parts.playbooks.get(who.tenant, body.playbook)).playbook
    else:
        read = read_playbook_text(body.text, found_incident.kind)
        if read.playbook is None:
            wrong = [
                {"at": f"body.text:{problem.line}:{problem.column}", "detail": str(problem)}
                for problem in read.problems[:100]
            ]
            raise HttpProblem(422, f"the playbook has {len(read.problems)} error(s)", wrong)
        playbook = read.playbook
    problems = await parts.playbooks.problems(who.tenant, playbook, found_incident.kind)
    if problems:
        raise HttpProblem(
            422, str(problems[0].message), [{"at": problem.where, "detail": problem.message} for problem in problems]
        )
    await context.note(who, "playbook.launch", incident, owner=found_incident.owner, run=found_incident.run)
    try:
        home = engine_of(context) if found_incident.engine == OWN_ENGINE else context.services.engines
        acted = await _raising(context, home).launch(found_incident, playbook, by=who.subject)
    except Conflict as error:
        raise HttpProblem(409, str(error)) from error
    return json_answer({"incident": incident, "outcome": acted.did.value, "detail": acted.words})
