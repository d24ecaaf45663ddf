"""Routes for approvers: open requests, and the answers to them."""

from __future__ import annotations

from fastapi import Response

from forestay.apps.server.http.answers import Out, errors
from forestay.apps.server.http.approvals import ApprovalOut, State, approval_public, carry_out
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Approver, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model, Reason
from forestay.domain.exceptions.safeguards.approval_policy import ApprovalStage
from forestay.ports.errors import Conflict, NotFound, Permanent
from forestay.ports.operations.identity import Role

router = Router(prefix="/v1", tags=["approvals"])


class ApprovalsOut(Out):
    approvals: list[ApprovalOut]


class AnswerIn(Model):
    agree: bool
    reason: Reason = ""


@router.get("/approvals", response_model=ApprovalsOut, responses=errors())
async def find_approvals(context: TheDesk, who: Viewer, state: State | None = None) -> Response:
    """Requests that wait for approval, or were closed in the last days; the newest first."""
    approval_records = await context.services.components.approvals.find(who.tenant)
    shown = [
        approval_public(approval_record)
        for approval_record in approval_records
        if state is None or approval_record.stage == state
    ]
    return json_answer({"approvals": shown})


@router.get("/approvals/{request}", response_model=ApprovalOut, responses=errors(404))
async def read_approval(context: TheDesk, who: Viewer, request: str) -> Response:
    """One request."""
    try:
        return json_answer(approval_public(await context.services.components.approvals.get(who.tenant, request)))
    except NotFound as error:
        raise HttpProblem(404, str(error)) from error


@router.post("/approvals/{request}", response_model=ApprovalOut, responses=errors(404, 409, body=True))
async def answer_approval(context: TheDesk, who: Approver, request: str, body: AnswerIn) -> Response:
    """Approve a request, which is then carried out, or reject it. Nobody can answer their own request. A repetition changes nothing."""
    approvals = context.services.components.approvals
    try:
        before = await approvals.get(who.tenant, request)
        if body.agree and who.subject == before.asking.by:
            # Before the log records the approval.
            raise HttpProblem(403, f"{who.subject} requested it; another person must approve it")
        if before.answered is None:
            what = "approval.agree" if body.agree else "approval.refuse"
            await context.note(who, what, before.asking.on, why=body.reason, request=request, asked_by=before.asking.by)
        known = await approvals.answer(
            who.tenant, request, agreed=body.agree, by=who.subject, approver=who.may(Role.APPROVER), why=body.reason
        )
    except NotFound as error:
        raise HttpProblem(404, str(error)) from error
    except Permanent as error:
        raise HttpProblem(403, str(error)) from error
    except Conflict as error:
        raise HttpProblem(409, str(error)) from error
    if known.stage is ApprovalStage.APPROVED:
        known = await carry_out(context, known)
    elif known.stage is ApprovalStage.REFUSED:
        await context.services.requests.close([known])
    return json_answer(approval_public(known))
