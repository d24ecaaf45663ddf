"""Routes for what people raise: the triggers of a case, new exceptions, and exlets launched for an incident."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from forestay.apps.server.flows.case_routes import case_of_tenant, home_of
from forestay.apps.server.flows.flow_routes import engine_of
from forestay.apps.server.http.answers import Out, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Operator, RequestContext, Submitter, TheDesk, Viewer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Id, Model, NoNul
from forestay.apps.server.jobs.job_routes import json_answer
from forestay.domain.exceptions.incidents.incident import OWN_ENGINE
from forestay.formats.rules.exlet_json import read_exlet_text
from forestay.ports.errors import Conflict, NotFound
from forestay.ports.exceptions.exception_engine import ExceptionEngine
from forestay.ports.operations.identity import Role
from forestay.services.exceptions.triggers import TriggerRequest, Triggers

router = Router(prefix="/v1", tags=["cases"])
Item = Annotated[str, Field(max_length=500)]
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
    """or what happened, if none of them says it: the case is suspended, and the administrators are told."""
    item: Item = ""
    """The work item that it concerns; nothing: the case."""
    reason: Words = ""
    """What else there is to say; of something new, how it might be handled."""
    id: Id | None = None
    """The same in every repeat; one is made if it is left out."""


class RaisedOut(Out):
    incident: str | None
    """None: no rule answers, and nothing was done."""
    verdict: str
    """``exlet``: a rule concluded; ``hold``: a person is asked; ``ignore``."""
    id: str


class LaunchIn(Model):
    exlet: Annotated[str, Field(max_length=64)] = ""
    """The name of a kept exlet;"""
    text: Annotated[str, Field(max_length=262_144)] = ""
    """or an exlet in YAML or JSON."""


class LaunchedOut(Out):
    incident: str
    outcome: str
    """``begun``, ``done``, or ``refused``."""
    detail: str


def _raising(context: RequestContext, home: ExceptionEngine) -> Triggers:
    parts = context.services.components
    return Triggers(parts.exceptions, home, parts.store, parts.clock)


@router.get("/cases/{case}/triggers", response_model=TriggersOut, responses=errors(404))
async def find_triggers(
    context: TheDesk, who: Viewer, case: str, item: Annotated[str, Query(max_length=500)] = ""
) -> Response:
    """What can be raised for a case, or for one of its items: the external triggers in the rule sets that apply."""
    found = await case_of_tenant(context, case, who)
    offered = await _raising(context, home_of(context, found)).offered(who.tenant, found.name, item)
    return json_answer({"triggers": [one._asdict() for one in offered]})


@router.post("/cases/{case}/triggers", response_model=RaisedOut, responses=errors(404, 409, body=True))
async def raise_trigger(context: TheDesk, who: Submitter, case: str, body: RaiseIn) -> Response:
    """Raise an exception for a case or an item: one that is offered, which its rule answers; or a new one, which suspends the case."""
    found = await case_of_tenant(context, case, who)
    if found.owner != who.subject and not who.may(Role.OPERATOR):
        raise HttpProblem(403, f"the run belongs to {found.owner}; only the owner or an operator may do this")
    if bool(body.trigger) == bool(body.new):
        raise HttpProblem(422, "send either `trigger` or `new`")
    raising = _raising(context, home_of(context, found))
    name = body.trigger or body.new
    known = {one.name for one in await raising.offered(who.tenant, found.name, body.item)}
    if body.trigger and body.trigger not in known:
        raise HttpProblem(409, f"no rule offers {body.trigger!r}; offered: {', '.join(sorted(known)) or 'none'}")
    event = body.id or context.services.components.ids.claim()
    what = TriggerRequest(found, who.subject, event, name, body.item, body.reason)
    await context.note(who, "case.raise", case, owner=found.owner, why=body.reason, trigger=name, item=body.item)
    try:
        if name in known:
            answer = await raising.raise_trigger(what)
            told = {"incident": answer.incident or None, "verdict": answer.verdict}
        else:
            told = {"incident": await raising.raise_new(what), "verdict": "hold"}
    except NotFound as error:
        raise HttpProblem(404, str(error)) from error
    except Conflict as error:
        raise HttpProblem(409, str(error)) from error
    return json_answer(told | {"id": event})


@router.post("/incidents/{incident}/exlet", response_model=LaunchedOut, responses=errors(404, 409, body=True))
async def launch_exlet(context: TheDesk, who: Operator, incident: str, body: LaunchIn) -> Response:
    """Carry out an exlet for an incident that waits for a person: written for it, or one that is kept."""
    parts = context.services.components
    found = (await parts.incidents.get_incidents([incident])).get(incident) if len(incident) <= 64 else None
    if found is None or found.tenant != who.tenant:
        raise HttpProblem(404, "there is no such incident")
    if bool(body.exlet) == bool(body.text):
        raise HttpProblem(422, "send either the name of a playbook or its text")
    if body.exlet:
        exlet = (await parts.exlets.get(who.tenant, body.exlet)).exlet
    else:
        read = read_exlet_text(body.text, found.kind)
        if read.exlet is None:
            wrong = [{"at": f"body.text:{one.line}:{one.column}", "detail": str(one)} for one in read.problems[:100]]
            raise HttpProblem(422, f"the exlet has {len(read.problems)} error(s)", wrong)
        exlet = read.exlet
    problems = await parts.exlets.problems(who.tenant, exlet, found.kind)
    if problems:
        raise HttpProblem(422, str(problems[0].message), [{"at": one.where, "detail": one.message} for one in problems])
    await context.note(who, "exlet.launch", incident, owner=found.owner, case=found.case)
    try:
        home = engine_of(context) if found.engine == OWN_ENGINE else context.services.engines
        acted = await _raising(context, home).launch(found, exlet, by=who.subject)
    except Conflict as error:
        raise HttpProblem(409, str(error)) from error
    return json_answer({"incident": incident, "outcome": acted.did.value, "detail": acted.words})
