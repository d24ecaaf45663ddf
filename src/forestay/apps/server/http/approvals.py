"""Actions by hand that one person may not take alone: a request that waits for another person, and the action once that person approves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import orjson
from fastapi import Response

from forestay.apps.server.http.answers import Out, Responses, Time
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, settled
from forestay.domain.exceptions.safeguards.approval_policy import LASTS, ApprovalRequest, digest_of, needed
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.jobs import job_document
from forestay.domain.jobs.job_document import Token
from forestay.formats.jobs.job_public import time_text
from forestay.ports.errors import Conflict, NotFound, PortError
from forestay.ports.operations.identity import Principal
from forestay.services.exceptions.safeguards.approvals import ApprovalRecord

State = Literal["waiting", "approved", "done", "refused", "expired"]


class ApprovalOut(Out):
    id: str
    state: State
    words: str
    """What would be done, and why that needs approval."""
    on: str
    owner: str
    by: str
    """Who asked, or the rule."""
    incident: str
    """The incident whose rule asks; empty: a person asked by hand."""
    why: str
    at: Time
    until: Time
    answered_by: str | None
    answer: str | None
    outcome: str | None


class PendingApprovalOut(Out):
    waits: ApprovalOut


WAITS: Responses = {202: {"model": PendingApprovalOut, "description": "Nothing was done yet: an approval is needed"}}


def alone(context: RequestContext, who: Principal, action: str, target: str, *, owner: str) -> bool:
    """Whether a person may do this alone: it needs no approval, it ends their own run, or this domain has only one person."""
    if context.services.components.settings.approvals == "off":
        return True
    own = action == "remove" and target in ("run", "ancestors") and owner == who.subject
    return own or needed(action, target, rule_owner="", job_owner=owner) is None


async def ask(
    context: RequestContext,
    who: Principal,
    action: str,
    on: str,
    *,
    owner: str,
    why: str,
    act: Mapping[str, Any],
    words: str,
) -> Response:
    """Store the request, and answer that it waits: 202."""
    parts = context.services.components
    now = parts.clock.now()
    asking = ApprovalRequest(
        tenant=who.tenant,
        decision=digest_of({"act": dict(act), "why": why}),
        words=words,
        by=who.subject,
        at=now,
        until=now + LASTS,
        on=on,
        owner=owner,
        why=why,
        act=act,
    )
    known = await parts.approvals.ask(asking)
    await context.note(who, "approval.ask", on, why=why, request=known.id, act=action)
    return Response(orjson.dumps({"waits": approval_public(known)}), 202, media_type="application/json")


def approval_public(known: ApprovalRecord) -> dict[str, object]:
    asking, answer = known.asking, known.answered
    return {
        "id": known.id,
        "state": known.stage.value,
        "words": asking.words,
        "on": asking.on,
        "owner": asking.owner,
        "by": asking.by,
        "why": asking.why,
        "incident": str(asking.act.get("incident", "")),
        "at": time_text(asking.at),
        "until": time_text(asking.until),
        "answered_by": answer.by if answer is not None else None,
        "answer": answer.why if answer is not None else None,
        "outcome": known.outcome,
    }


async def carry_out(context: RequestContext, known: ApprovalRecord) -> ApprovalRecord:
    """Carry out an approved request on behalf of the requester; once, however often it is called."""
    asking, act = known.asking, known.asking.act
    assert known.answered is not None  # noqa: S101 - the caller looked
    reason = f"{asking.why} (approved by {known.answered.by})".strip()
    try:
        match act["kind"]:
            case "job.force":
                state, token = job_document.State(act["to"]), Token(act["generation"], act["attempt"])
                steer = context.services.steer
                answer = await steer.force(asking.on, to=state, expected=token, by=asking.by, reason=reason)
                outcome = str(settled(answer).document.state)
            case "job.release":
                answer = await context.services.steer.release(
                    asking.on, attempt=act["attempt"], claim=act["claim"], by=asking.by, reason=reason
                )
                outcome = str(settled(answer).document.state)
            case "run.verb":
                outcome = await _run_verb(context, asking.on, _verb(act, asking, reason))
            case "flow.verb":
                suspensions = context.services.suspensions
                await suspensions.order(asking.tenant, asking.on, _verb(act, asking, reason))
                outcome = "sent to all runs"
            case "decision":
                went = await context.services.components.recovery.resume(act["incident"], act["n"])
                outcome = "passed to the rule" if went else "the job has changed since"
            case kind:
                outcome = f"refused: unknown kind {kind!r}"
    except HttpProblem as problem:
        if problem.status_code >= 500:
            raise
        outcome = f"refused: {problem.detail}"
    except PortError as error:
        if not isinstance(error, NotFound | Conflict):
            raise
        outcome = f"refused: {error}"
    return await context.services.components.approvals.carried_out(known, outcome)


def _verb(act: Mapping[str, Any], asking: ApprovalRequest, reason: str) -> Verb:
    verb = dict(act["verb"])
    return Verb(
        at=asking.at,
        id=verb["id"],
        kind=VerbKind(verb["kind"]),
        instance=verb["task"],
        by=asking.by,
        holder=asking.by,
        reason=reason,
        round=verb["round"],
        ancestors=verb["ancestors"],
        begun_by=verb["begun_by"],
    )


async def _run_verb(context: RequestContext, run: str, verb: Verb) -> str:
    engine = context.services.components.engine
    if engine is None:
        raise HttpProblem(409, "flows are not available here")
    try:
        answer = await engine.send_verb(run, verb)
    except NotFound:
        return "the run has ended"
    return "done" if answer.accepted else f"refused: {answer.detail}"


def verb_act(kind: str, verb: Verb, *, begun_by: int | None = None) -> dict[str, Any]:
    """The stored form of a verb that waits for approval."""
    plain = {
        "id": verb.id,
        "kind": verb.kind.value,
        "task": verb.instance,
        "round": verb.round,
        "ancestors": verb.ancestors,
        "begun_by": begun_by,
    }
    return {"kind": kind, "verb": plain}
