"""Carries out a person's action on a group of failures in the inbox, and reports its outcome.

An action is recorded with all incidents it was applied to, so that everybody sees the same on every page, and the next, larger action can be refused while this
one has not succeeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.inbox import WaitsFor, group_key_of
from forestay.domain.exceptions.incidents.inbox_action import (
    MOST,
    InboxOutcome,
    InboxRemedy,
    InboxTarget,
    Reach,
    TriedAction,
)
from forestay.domain.exceptions.incidents.incident import CLOSED, IncidentState, IncidentStatus
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore
from forestay.ports.errors import NotFound, PortError, Transient
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore, Written
from forestay.services.jobs.job_control import JobControl
from forestay.services.shared.checked_writer import Answer, WriteApplied
from forestay.services.shared.incident_settlement import settle_held

KIND = "inbox-act"
AT_ONCE = 16
ENDED_WELL = frozenset({State.COMPLETED, State.FORCED_COMPLETE})
ENDED_BADLY = frozenset({State.FAULTED, State.FAILED, State.CANCELLED})
Launch = Callable[[str], Awaitable[str]]
"""Carries out a playbook for an incident; returns empty, or why it was refused."""


class InboxActionMember(NamedTuple):
    """One incident of an action."""

    incident: str
    job: str
    attempt: int
    """The failed attempt."""
    refused: str
    """Why it was not done; empty: it was done."""


class InboxAction(NamedTuple):
    """The record of an action."""

    id: str
    by: str
    at: int
    why: str
    target: InboxTarget
    reach: Reach
    whole: bool
    members: Sequence[InboxActionMember]


class InboxSelection(NamedTuple):
    """The incidents to act on, oldest first, and whether these are all."""

    statuses: Sequence[IncidentStatus]
    whole: bool


@dataclass(slots=True)
class InboxActions:
    """The service."""

    incidents: IncidentStore
    store: JobStore
    documents: DocumentStore
    steer: JobControl
    clock: Clock

    async def choose(self, tenant: str, target: InboxTarget, reach: Reach) -> InboxSelection:
        """The oldest incidents of a group that wait for a person, not for the end of a storm or an approval."""
        query = IncidentQuery(
            tenant=tenant,
            cause=target.cause or None,
            owner=target.owner or None,
            fingerprint=target.fingerprint or None,
            states=frozenset({IncidentState.HELD}),
        )
        chosen: list[IncidentStatus] = []
        cursor: str | None = None
        while True:
            page = await self.incidents.find(query, sort="at", limit=MOST, cursor=cursor)
            chosen += [stored.status for stored in page.statuses if _waits_for_a_person(stored.status)]
            cursor = page.cursor
            if cursor is None or len(chosen) > reach.most:
                return InboxSelection(chosen[: reach.most], cursor is None and len(chosen) <= reach.most)

    async def act(
        self,
        tenant: str,
        name: str,
        target: InboxTarget,
        reach: Reach,
        chosen: InboxSelection,
        *,
        by: str,
        why: str,
        launch: Launch,
    ) -> InboxAction:
        """Apply the action to each chosen incident independently, and record the results."""
        jobs = await self.store.get(sorted({status.job for status in chosen.statuses if status.job}))
        documents = {name: stored.document for name, stored in jobs.items()}
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(status: IncidentStatus) -> InboxActionMember:
            document = documents.get(status.job)
            async with gate:
                refused = await self._do(target.remedy, status, document, by=by, why=why, launch=launch)
            return InboxActionMember(status.id, status.job, document.attempt if document is not None else 0, refused)

        members = await asyncio.gather(*(one(status) for status in chosen.statuses))
        if target.remedy is not InboxRemedy.PLAYBOOK:
            done = [member.incident for member in members if not member.refused]
            await settle_held(self.incidents, done, f"{by}: {target.remedy.value}. {why}", now=self.clock.now())
        made = InboxAction(name, by, self.clock.now(), why, target, reach, chosen.whole, members)
        (written,) = await self.documents.put([(Document(_document(name), tenant, KIND, _plain(made)), None)])
        if not isinstance(written, Written):
            raise Transient("the action was executed but could not be recorded; check the inbox")
        return made

    async def _do(
        self,
        remedy: InboxRemedy,
        status: IncidentStatus,
        document: JobDocument | None,
        *,
        by: str,
        why: str,
        launch: Launch,
    ) -> str:
        try:
            if remedy is InboxRemedy.PLAYBOOK:
                return await launch(status.id)
            if document is None:
                return "it does not concern a job; run a playbook for it"
            if remedy is InboxRemedy.RETRY:
                return _refusal(await self.steer.retry(status.job, by=by, reason=why))
            return _refusal(await self.steer.cancel(status.job, by=by, reason=why))
        except PortError as error:
            return str(error)

    async def get(self, tenant: str, name: str) -> InboxAction:
        """The record of an action; `NotFound` if there is none in the tenant."""
        stored = (await self.documents.get([_document(name)])).get(_document(name))
        if stored is None or stored.document.tenant != tenant:
            raise NotFound("there is no such action")
        return _from_plain(name, stored.document.body)

    async def look(self, act: InboxAction) -> TriedAction:
        """The outcomes of an action until now, for each incident in order."""
        jobs = await self.store.get(sorted({member.job for member in act.members if member.job}))
        statuses = await self.incidents.get_statuses([member.incident for member in act.members])
        fates = [
            _fate(
                act.target.remedy,
                member,
                jobs[member.job].document if member.job in jobs else None,
                statuses[member.incident].status if member.incident in statuses else None,
            )
            for member in act.members
        ]
        return TriedAction(act.target, act.reach, fates, act.whole)


def _waits_for_a_person(status: IncidentStatus) -> bool:
    return group_key_of(status).waits is WaitsFor.PERSON


def _refusal(answer: Answer) -> str:
    if isinstance(answer, WriteApplied):
        return ""
    return answer.reason if isinstance(answer, TransitionRefused) else "the result of the write is unknown"


def _fate(
    remedy: InboxRemedy, member: InboxActionMember, document: JobDocument | None, status: IncidentStatus | None
) -> InboxOutcome:
    if member.refused:
        return InboxOutcome.BAD
    if remedy is InboxRemedy.CANCEL:
        return InboxOutcome.WELL
    if (
        remedy is InboxRemedy.PLAYBOOK
        and status is not None
        and status.state in (IncidentState.HELD, IncidentState.FAILED)
    ):
        return InboxOutcome.BAD
    if document is None:
        return InboxOutcome.WELL if status is not None and status.state in CLOSED else InboxOutcome.PENDING
    if document.state in ENDED_WELL:
        return InboxOutcome.WELL
    again = document.attempt > member.attempt or document.state in (State.FAILED, State.CANCELLED)
    return InboxOutcome.BAD if document.state in ENDED_BADLY and again else InboxOutcome.PENDING


def _document(name: str) -> str:
    return f"{KIND}:{name}"


def _plain(act: InboxAction) -> Mapping[str, object]:
    return {
        "by": act.by,
        "at": act.at,
        "why": act.why,
        "cause": act.target.cause,
        "owner": act.target.owner,
        "do": act.target.remedy.value,
        "playbook": act.target.playbook,
        "fingerprint": act.target.fingerprint,
        "reach": act.reach.value,
        "whole": act.whole,
        "members": [list(member) for member in act.members],
    }


def _from_plain(name: str, body: Mapping[str, Any]) -> InboxAction:
    # An action recorded by an earlier release names no error.
    error = body.get("fingerprint", "")
    target = InboxTarget(body["cause"], body["owner"], InboxRemedy(body["do"]), body["playbook"], error)
    members = [InboxActionMember(*member) for member in body["members"]]
    return InboxAction(name, body["by"], body["at"], body["why"], target, Reach(body["reach"]), body["whole"], members)
