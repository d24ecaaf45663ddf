"""Stores approval requests: who requested what, the other person's answer, and that it was carried out.

Three documents, each create-only: the request, the answer, and the record that it was carried out. So the first answer is kept, and a process that finds
an answer without the third repeats the action, which takes effect only once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, cast

from forestay.domain.exceptions.incidents.incident import Decision
from forestay.domain.exceptions.safeguards.approval_policy import (
    LASTS,
    Approval,
    ApprovalAnswer,
    ApprovalRequest,
    ApprovalStage,
    NotApproved,
    approve,
    digest_of,
    stage_of,
)
from forestay.domain.exceptions.safeguards.safeguards import ActionRequest, why_alone
from forestay.ports.clock import Clock
from forestay.ports.errors import Conflict, NotFound, Permanent
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.services.shared.quarantine import Quarantine
from forestay.services.shared.record_pages import record_pages

ASKED, ANSWERED, DONE = "approval", "approval-answer", "approval-done"
SHOWN = 1000
LOOKED_AT = 14 * LASTS
"""The greatest age of an open request that is checked: all reconcilers may be down for that long."""
AGAIN = 100
"""How often the same action may be requested again after it was refused or has expired."""


class ApprovalRecord(NamedTuple):
    """The present state of a request."""

    id: str
    asking: ApprovalRequest
    answered: ApprovalAnswer | None
    outcome: str | None
    """The outcome of the action; None: it was not carried out, or not yet."""
    stage: ApprovalStage


@dataclass(slots=True)
class Approvals:
    """The service."""

    store: JobStore
    clock: Clock
    troubled: Callable[[str], None] = lambda _text: None
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""

    async def ask(self, asking: ApprovalRequest) -> ApprovalRecord:
        """Request another person's approval; a repeat while the request waits is the same request."""
        for number in range(AGAIN):
            name = _name(asking, number)
            body = {**asdict(asking), "act": dict(asking.act)}
            record = Record(f"{ASKED}:{name}", asking.tenant, ASKED, name, asking.at, body)
            known = None
            if not (await self.store.add_records([record]))[0]:
                known = await self._known(name)
            if known is None:
                return ApprovalRecord(name, asking, None, None, ApprovalStage.WAITING)
            if known.stage in (ApprovalStage.WAITING, ApprovalStage.APPROVED):
                return known
        raise Conflict("this was requested too often")

    async def get(self, tenant: str, name: str) -> ApprovalRecord:
        """A request of a tenant; `NotFound`."""
        known = await self._known(name) if name.isascii() and name.isalnum() else None
        if known is None or known.asking.tenant != tenant:
            raise NotFound(f"there is no request {name[:64]} in tenant {tenant}")
        return known

    async def find(self, tenant: str) -> Sequence[ApprovalRecord]:
        """The requests of the last days, newest first; up to a second old."""
        return await self._since(self.clock.now() - 2 * LASTS, tenant, SHOWN)

    async def asked_lately(self) -> Sequence[ApprovalRecord]:
        """The recent requests of all tenants that may have been refused or have expired."""
        return await self._since(self.clock.now() - LOOKED_AT, None, None)

    async def _since(self, since: int, tenant: str | None, limit: int | None) -> Sequence[ApprovalRecord]:
        """The newest requests, or all; some answers to the oldest of them may be missing if there is a limit."""

        async def newest(kind: str) -> Sequence[Record]:
            if limit is None:
                pages = record_pages(self.store, kind=kind, tenant=tenant, since=since)
                return [record async for page in pages for record in page][::-1]
            return await self.store.find_records(kind=kind, tenant=tenant, since=since, newest_first=True, limit=limit)

        answers = {record.job: record for record in await newest(ANSWERED)}
        done = {record.job: record for record in await newest(DONE)}
        approval_records: list[ApprovalRecord] = []
        for asked in await newest(ASKED):
            try:
                approval_records.append(self._read(asked, answers.get(asked.job), done.get(asked.job)))
            except (TypeError, ValueError, KeyError) as error:  # one request that cannot be read hides no other
                self.quarantine.report(f"request {asked.job}", f"{type(error).__name__}: {error}", self.troubled)
        return approval_records

    async def answer(
        self, tenant: str, name: str, *, agreed: bool, by: str, approver: bool, why: str
    ) -> ApprovalRecord:
        """Approve or reject. `Permanent`: this person may not; `Conflict`: another person answered differently, or it is too late."""
        known = await self.get(tenant, name)
        now = self.clock.now()
        allowed = approve(known.asking, by=by, tenant=tenant, approver=approver, now=now)
        if known.answered is None and isinstance(allowed, NotApproved):
            taken_back = by == known.asking.by and not agreed  # a request may always be withdrawn by its author
            if now >= known.asking.until:
                raise Conflict(allowed.words)
            if not taken_back:
                raise Permanent(allowed.words)
        if known.answered is None:
            body = {"agreed": agreed, "by": by, "at": now, "why": why}
            await self.store.add_records([Record(f"{ANSWERED}:{name}", tenant, ANSWERED, name, now, body)])
            known = await self.get(tenant, name)
        if known.answered is None or known.answered.agreed is not agreed:
            answer = known.answered
            who = answer.by if answer is not None else "nobody"
            raise Conflict(f"{who} has {'approved' if answer is not None and answer.agreed else 'rejected'} already")
        return known

    async def carried_out(self, known: ApprovalRecord, outcome: str) -> ApprovalRecord:
        """Record that it was carried out, and the outcome."""
        body = {"outcome": outcome[:1000]}
        record = Record(f"{DONE}:{known.id}", known.asking.tenant, DONE, known.id, self.clock.now(), body)
        await self.store.add_records([record])
        return await self.get(known.asking.tenant, known.id)

    async def approval(self, tenant: str, decision: str) -> Approval | None:
        """Another person's approval of a rule's decision, if there is one."""
        known = await self._known(_name_of(tenant, decision, "", 0))
        if known is None or known.answered is None or not known.answered.agreed:
            return None
        answer = known.answered
        return Approval(tenant, decision, known.asking.by, answer.by, answer.at, answer.at + LASTS)

    async def given_to(self, request: ActionRequest) -> ActionRequest:
        """A rule's request to act, with the approval where one is needed and given."""
        if not request.rule or why_alone(request) is None:
            return request
        return replace(request, approval=await self.approval(request.tenant, request.decision))

    async def ask_for(self, request: ActionRequest, decision: Decision, acts: str, *, job: str) -> None:
        """Request approval of a rule's decision. `job`: the failed job; empty for every other exception."""
        now = self.clock.now()
        await self.ask(
            ApprovalRequest(
                tenant=request.tenant,
                decision=request.decision,
                words=f"{acts}: {why_alone(request)}",
                by=str(decision.detail.get("author", "")) or request.rule,
                at=now,
                until=now + LASTS,
                on=request.job,
                owner=request.owner,
                why=str(decision.detail.get("words", "")),
                act={"kind": "decision", "incident": decision.incident, "n": decision.n, "job": job},
            )
        )

    async def _known(self, name: str) -> ApprovalRecord | None:
        asked = await self.store.get_record(f"{ASKED}:{name}")
        if asked is None:
            return None
        return self._read(
            asked, await self.store.get_record(f"{ANSWERED}:{name}"), await self.store.get_record(f"{DONE}:{name}")
        )

    def _read(self, asked: Record, answer: Record | None, done: Record | None) -> ApprovalRecord:
        asking = ApprovalRequest(**cast("dict[str, Any]", dict(asked.body)))
        answered = ApprovalAnswer(**cast("dict[str, Any]", dict(answer.body))) if answer is not None else None
        outcome = str(done.body["outcome"]) if done is not None else None
        stage = stage_of(asking, answered, done=done is not None, now=self.clock.now())
        return ApprovalRecord(asked.job, asking, answered, outcome, stage)


def _name(asking: ApprovalRequest, number: int) -> str:
    by_rule = asking.act.get("kind") == "decision"
    return _name_of(asking.tenant, asking.decision, "" if by_rule else asking.by, number)


def _name_of(tenant: str, decision: str, by: str, number: int) -> str:
    """The name of a request, short enough to be typed."""
    return digest_of({"tenant": tenant, "decision": decision, "by": by, "number": number})[:12]
