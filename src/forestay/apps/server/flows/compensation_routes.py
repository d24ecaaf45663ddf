"""Routes of the compensation library, and of its entries on the stacks of runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query, Response
from pydantic import Field

from forestay.apps.server.flows.flow_routes import Version, engine_of
from forestay.apps.server.flows.run_routes import AnsweredOut, check_owner, is_ours, run_of_tenant
from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import (
    RequestContext,
    RuleAuthor,
    Submitter,
    TheDesk,
    Viewer,
    json_answer,
)
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Id, Model, Reason
from forestay.domain.flows.definition.registered_compensation import ACTION
from forestay.domain.flows.events import Verb, VerbKind
from forestay.formats.flows.compensation_yaml import read_compensation_text, write_compensation_text
from forestay.formats.flows.run_public import compensation_public
from forestay.formats.jobs.job_public import time_text
from forestay.ports.errors import NotFound
from forestay.ports.flows.flow_engine import RunSummary
from forestay.ports.operations.identity import Principal
from forestay.services.flows.compensation_library import StoredCompensation

router = Router(prefix="/v1", tags=["runs"])
ActionName = Annotated[str, Path(pattern=f"^{ACTION}$")]
Digest = Annotated[str, Query(pattern=r"^[0-9a-f]{64}$")]


class CompensationIn(Model):
    text: Annotated[str, Field(min_length=1, max_length=262_144)]
    """The compensation in YAML or JSON; its action is that of the address."""


class CompensationOut(Out):
    action: str
    version: str
    """The digest of what is run."""
    description: str
    by: str
    at: Time


class CompensationsOut(Out):
    compensations: list[CompensationOut]


class CompensationVersionOut(Out):
    version: str
    by: str
    at: Time


class CompensationDetailsOut(CompensationOut):
    text: str
    versions: list[CompensationVersionOut]
    """The newest first, at most 100; empty if another version than the newest was requested."""


class StackEntryOut(Out):
    number: int
    """A higher number was pushed later and is run earlier."""
    task: str
    action: str
    """The action of a compensation in the library; empty: the flow defines it."""
    version: str
    """The version of the library's compensation that the run keeps."""
    state: Literal["looked-up", "waiting", "running", "held"]
    tries: int
    reason: str
    rebound_by: str
    """Who replaced the version that was current when its task completed; empty: nobody."""


class StackOut(Out):
    compensations: list[StackEntryOut]
    """The one that is run first comes first."""


class RebindIn(Model):
    version: Version | None = None
    """Of the library's compensation for the same action; nothing: the newest."""
    id: Id | None = None
    """The same in every repetition; generated if left out."""
    reason: Reason = ""


def _shown(kept: StoredCompensation) -> dict[str, Any]:
    return {
        "action": kept.registered.action,
        "version": kept.version,
        "description": kept.registered.description,
        "by": kept.by,
        "at": time_text(kept.at),
    }


def _whole(kept: StoredCompensation) -> dict[str, Any]:
    versions = [version._asdict() | {"at": time_text(version.at)} for version in kept.versions]
    return _shown(kept) | {"text": write_compensation_text(kept.registered), "versions": versions}


@router.get("/compensations", response_model=CompensationsOut, responses=errors())
async def find_compensations(context: TheDesk, who: Viewer) -> Response:
    """Every compensation of the library."""
    stored = await context.services.components.compensations.all(who.tenant)
    return json_answer({"compensations": [_shown(kept) for kept in stored]})


@router.get("/compensations/{action}", response_model=CompensationDetailsOut, responses=errors(404))
async def read_compensation(
    context: TheDesk, who: Viewer, action: ActionName, version: Digest | None = None
) -> Response:
    """What compensates an action: at its newest version, or at another one."""
    return json_answer(_whole(await context.services.components.compensations.get(who.tenant, action, version or "")))


@router.put("/compensations/{action}", response_model=CompensationDetailsOut, responses=errors(400, body=True))
async def put_compensation(context: TheDesk, who: RuleAuthor, action: ActionName, body: CompensationIn) -> Response:
    """Check a compensation and register it: tasks of this action that complete from now on are undone by it. Completed tasks keep their version."""
    read = read_compensation_text(body.text)
    wrong = [
        {"at": f"body.text:{problem.line}:{problem.column}", "detail": str(problem)} for problem in read.problems[:100]
    ]
    registered = read.registered
    if registered is not None and registered.action != action:
        words = f"the text is for the action {registered.action}, the address for {action}"
        wrong.append({"at": "body.text:action", "detail": words})
    if registered is None or wrong:
        raise HttpProblem(422, f"the compensation has {len(wrong)} error(s)", wrong)
    await context.note(who, "compensation.put", action, why=registered.description)
    stored = await context.services.components.compensations.put(who.tenant, registered, by=who.subject)
    return json_answer(_whole(stored))


@router.get("/runs/{run}/compensations", response_model=StackOut, responses=errors(404, 409, 501))
async def read_stack(context: TheDesk, who: Viewer, run: str) -> Response:
    """The compensation stack of a run, the last one pushed first."""
    entries = await _stack(context, await _ours(context, run, who))
    return json_answer({"compensations": [compensation_public(entry) for entry in reversed(entries)]})


@router.post(
    "/runs/{run}/compensations/{number}/rebind",
    response_model=AnsweredOut,
    responses=errors(404, 409, 501, body=True),
)
async def rebind_compensation(
    context: TheDesk, who: Submitter, run: str, number: Annotated[int, Path(ge=1, le=2**31)], body: RebindIn
) -> Response:
    """Change the version of the library's compensation for an entry of a run's stack. The change is recorded, also in the run; an entry that was held is run again."""
    summary = await _ours(context, run, who)
    check_owner(summary, who)
    entry = next((entry for entry in await _stack(context, summary) if entry["number"] == number), None)
    if entry is None:
        raise HttpProblem(404, f"there is no compensation {number} on the stack of run {run[:64]}")
    if not entry.get("action"):
        raise HttpProblem(409, f"compensation {number} is the flow's own, not one of the library")
    components = context.services.components
    stored = await components.compensations.get(who.tenant, entry["action"], body.version or "")
    verb = Verb(
        at=components.clock.now(),
        id=body.id or components.ids.claim(),
        kind=VerbKind.REBIND,
        instance=f"!{number}",
        by=who.subject,
        reason=body.reason,
        changes={"version": stored.version, "tries": stored.registered.compensation.tries},
    )
    what = {"verb": verb.id, "compensation": number, "action": entry["action"]}
    versions = {"from": entry.get("version", ""), "to": stored.version}
    await context.note(who, "run.rebind", run, owner=summary.owner, why=body.reason, **what, **versions)
    try:
        answer = await engine_of(context).send_verb(run, verb)
    except NotFound:
        raise HttpProblem(409, "the run has ended") from None
    if not answer.accepted:
        raise HttpProblem(409, answer.detail)
    detail = answer.detail or f"{entry['action']} is at version {stored.version[:12]}"
    return json_answer({"id": verb.id, "accepted": True, "detail": detail})


async def _ours(context: RequestContext, run: str, who: Principal) -> RunSummary:
    summary = await run_of_tenant(context, run, who)
    if not is_ours(summary):
        raise HttpProblem(409, "a run of another engine has no compensations here")
    return summary


async def _stack(context: RequestContext, summary: RunSummary) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = (await engine_of(context).state(summary.run))["stack"]
    return entries
