"""Continues unfinished exceptions: their handler died, their wait is over, a person approved them or released a storm, or a rule was added since.

There is no queue that could be lost. A failure is a job in the state `faulted` that is due; any other exception is an incident that is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from forestay.domain.exceptions.incidents.exception_type import EXCEPTIONS, ExceptionType
from forestay.domain.exceptions.incidents.incident import (
    CLOSED,
    PLAYBOOK,
    Decision,
    Incident,
    IncidentState,
    IncidentStatus,
    failure_incident_id,
    is_about,
)
from forestay.domain.jobs.claim import needs_person
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound, Permanent, Unreadable
from forestay.ports.exceptions.incident_store import SHOWN_AFTER, IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobQuery, JobStore, Stored
from forestay.services.exceptions.exception_event import PendingException, is_job_failure
from forestay.services.exceptions.failure_review import FailureReview
from forestay.services.exceptions.pipeline import BULK, LEFT_BEHIND, ExceptionPipeline
from forestay.services.exceptions.record.decision_log import StatusChange
from forestay.services.shared.polling import poll_forever

HANDLED_FOR = 5_000
"""Milliseconds after which the server that received a failure is certainly not handling it any more."""


@dataclass(slots=True)
class ExceptionRecovery:
    """The service; every reconciler runs it."""

    pipeline: ExceptionPipeline
    store: JobStore
    incidents: IncidentStore
    clock: Clock
    review: FailureReview
    """Classifies waiting failures again by new patterns."""
    every: float = 2.0
    _failures_decided_by: int = 0
    """The state of the rules when held failures were last decided, as their number of changes."""
    _incidents_decided_by: int = 0

    async def run(self) -> None:
        """Continue failures and other exceptions concurrently, so that a delay of one kind does not stop the other."""
        troubled = self.pipeline.troubled
        async with asyncio.TaskGroup() as group:
            group.create_task(poll_forever(self.look_at_failures, self.every, troubled))
            group.create_task(poll_forever(self.look_at_incidents, self.every, troubled))

    async def look_at_failures(self) -> None:
        """Continue failures of jobs that are due; reconsider those that are held if rules were added."""
        await self.pipeline.decider.get_ready()
        rules = self.pipeline.decider.rules.taken_over
        if rules != self._failures_decided_by:
            await self._reconsider_failures()
            self._failures_decided_by = rules
        await self.review.look()
        now = self.clock.now()
        bounds = {"not_before": now, "changed": now - HANDLED_FOR}
        query = JobQuery(states=frozenset({State.FAULTED}), at_most=bounds, held=False)
        cursor: str | None = None
        while True:
            # Page after page: failures that cannot be handled stay due, and must not hide those behind them.
            page = await self.store.search(query, sort="changed", limit=BULK, cursor=cursor)
            await self.pipeline.together(page.jobs, self._continue_failures)
            cursor = page.cursor
            if cursor is None:
                return

    async def _continue_failures(self, jobs: Sequence[Stored]) -> None:
        """Act by the recorded decisions on failures that were postponed; handle the others."""
        ids = {job.document.id: failure_incident_id(job.document) for job in jobs}
        stored = await self.incidents.get_statuses(list(ids.values()))
        waiting = {
            name: known.status
            for name, known in stored.items()
            if known.status.state is IncidentState.WAITING and known.status.n
        }
        decisions = (
            await self.incidents.get_decisions([(name, status.n) for name, status in waiting.items()])
            if waiting
            else {}
        )
        incidents = await self.incidents.get_incidents(list(waiting)) if waiting else {}
        pendings, rest = list[PendingException](), list[Stored]()
        for job in jobs:
            status = waiting.get(ids[job.document.id])
            decision = decisions.get((status.id, status.n)) if status is not None else None
            incident = incidents.get(status.id) if status is not None else None
            if status is None or decision is None or incident is None:
                rest.append(job)
            else:
                pendings.append(await self.pipeline.pending_failure(incident, status, decision, job.document))
        if pendings:
            await self.pipeline.act(pendings)
        await self.pipeline.handle_batch(await self.pipeline.detector.read_logs(rest))

    async def look_at_incidents(self) -> None:
        """The same for all other exceptions."""
        await self.pipeline.decider.get_ready()
        rules = self.pipeline.decider.rules.taken_over
        if rules != self._incidents_decided_by:
            await self._reconsider()
            self._incidents_decided_by = rules
        now = self.clock.now()
        for query in _queries(frozenset({IncidentState.OPEN, IncidentState.WAITING}), due=now):
            async for page in self._pages(query, "due"):
                later = await self.pipeline.quarantine.each(
                    page,
                    lambda status: self._continue(status, now),
                    name=lambda status: f"incident {status.id}",
                    troubled=self.pipeline.troubled,
                    failed=lambda status, why: self.pipeline.hold(status.id, why),
                )
                if later is not None:
                    self.pipeline.troubled(str(later))

    async def _continue(self, status: IncidentStatus, now: int) -> None:
        incident = (await self.incidents.get_incidents([status.id])).get(status.id)
        if incident is None:
            raise Permanent("its incident is missing from the store")
        decision = await self.incidents.get_decision(incident.id, max(1, status.n))
        if decision is None:
            (decision,) = await self.pipeline.log.agree([await self.pipeline.decider.decide(incident, now)])
        await self.pipeline.act_on(incident, status, decision)

    # -- a person has decided ------------------------------------------------------------------------------------

    async def resume(self, incident: str, n: int) -> bool:
        """Act now on a held decision, if its exception is still open: a person has approved it, or has released its group."""
        known = (await self.incidents.get_incidents([incident])).get(incident)
        stored = (await self.incidents.get_statuses([incident])).get(incident)
        decision = await self.incidents.get_decision(incident, n)
        if known is None or stored is None or decision is None or stored.status.state in CLOSED:
            return False
        status = stored.status
        if is_job_failure(status):
            job = (await self.store.get([status.job])).get(status.job)
            if job is None or not is_about(known, job.document):
                return False
            await self.pipeline.act([await self.pipeline.pending_failure(known, status, decision, job.document)])
            return True
        if decision.playbook is None or status.state is not IncidentState.HELD or status.n != n:
            return False
        due = self.clock.now() + LEFT_BEHIND
        await self.pipeline.log.move({incident: StatusChange(IncidentState.WAITING, n, "agreed to", due)})
        await self.pipeline.act_on(known, status, decision)
        return True

    async def wake(self, tenant: str, group: str) -> int:
        """Make due the held incidents of a storm's group after a person has decided how it continues; returns their number."""
        woken = await self._wake(tenant, group, IncidentState.HELD, IncidentState.WAITING)
        # A search is up to a second old; for what is held later than that, `ActionExecutor` itself checks whether a person has decided.
        await asyncio.sleep(SHOWN_AFTER)
        return woken + await self._wake(tenant, group, IncidentState.HELD)

    async def _wake(self, tenant: str, group: str, *states: IncidentState) -> int:
        woken = 0
        async for page in self._pages(IncidentQuery(tenant=tenant, group=group, states=frozenset(states)), "at"):
            names = [status.job for status in page if is_job_failure(status)]
            jobs = await self.pipeline.quarantine.readable(self.store.get, names, self.pipeline.troubled)
            failed = [
                stored.document
                for status in page
                if (stored := jobs.get(status.job)) is not None
                and is_job_failure(status)
                and failure_incident_id(stored.document) == status.id
            ]
            due = [failure_incident_id(document) for document in failed]
            due += [status.id for status in page if not is_job_failure(status)]
            await self.pipeline.executor.make_due(due, failed)
            woken += len(due)
        return woken

    # -- rules that were added since ---------------------------------------------------------------------------

    async def _reconsider_failures(self) -> None:
        """Answer held failures by rules that were added since: with a new decision beside the first."""
        query = IncidentQuery(kind=ExceptionType.ABORT.value, states=frozenset({IncidentState.HELD}))
        async for page in self._pages(query, "at"):
            statuses = {status.id: status for status in page if is_job_failure(status)}
            known = await self.pipeline.quarantine.readable(
                self.incidents.get_incidents, list(statuses), self.pipeline.troubled
            )
            names = [status.job for status in statuses.values()]
            jobs = await self.pipeline.quarantine.readable(self.store.get, names, self.pipeline.troubled)
            held = [
                (stored, incident)
                for incident in known.values()
                if (stored := jobs.get(incident.job)) is not None
                and is_about(incident, stored.document)
                and not needs_person(stored.document)
            ]

            async def decide_again(
                held: Sequence[tuple[Stored, Incident]], statuses: Mapping[str, IncidentStatus] = statuses
            ) -> None:
                await self._decide_failures_again(held, statuses)

            await self.pipeline.together(held, decide_again)

    async def _decide_failures_again(
        self, held: Sequence[tuple[Stored, Incident]], statuses: Mapping[str, IncidentStatus]
    ) -> None:
        now = self.clock.now()
        again: list[tuple[Incident, Decision, JobDocument]] = []
        for stored, incident in held:
            n = statuses[incident.id].n
            # The default policy has nothing new to say: it decided before, and a person was asked since.
            decision, _ = await self.pipeline.decider.decide_by_rule(incident, now, n=n + 1)
            if decision is not None and await self._is_news(decision, n):
                again.append((incident, decision, stored.document))
        agreed = await self.pipeline.log.agree([decision for _, decision, _ in again]) if again else ()
        pendings = [
            await self.pipeline.pending_failure(incident, statuses[incident.id], decision, document)
            for (incident, _, document), decision in zip(again, agreed, strict=True)
        ]
        if pendings:
            await self.pipeline.act(pendings)

    async def _reconsider(self) -> None:
        """The same for exceptions that are not failures of our jobs."""
        for query in _queries(frozenset({IncidentState.HELD})):
            async for page in self._pages(query, "at"):
                names = [status.id for status in page]
                known = await self.pipeline.quarantine.readable(
                    self.incidents.get_incidents, names, self.pipeline.troubled
                )
                later = await self.pipeline.quarantine.each(
                    [(known[status.id], status) for status in page if status.id in known],
                    lambda held: self._decide_again(*held),
                    name=lambda held: f"incident {held[0].id}",
                    troubled=self.pipeline.troubled,
                )
                if later is not None:
                    raise later

    async def _decide_again(self, incident: Incident, status: IncidentStatus) -> None:
        decision = await self.pipeline.decider.decide(incident, self.clock.now(), n=status.n + 1)
        if not await self._is_news(decision, status.n):
            return
        (agreed,) = await self.pipeline.log.agree([decision])
        try:
            await self.pipeline.act_on(incident, status, agreed)
        except NotFound:
            change = StatusChange(IncidentState.HELD, agreed.n, "its run no longer exists")
            await self.pipeline.log.move({incident.id: change})
        self.pipeline.exceptions += 1

    async def _is_news(self, decision: Decision, n: int) -> bool:
        """Whether a rule concludes that did not decide before: the same rule has acted already, or has requested approval."""
        if decision.verdict != PLAYBOOK:
            return False
        try:
            before = await self.incidents.get_decision(decision.incident, n) if n else None
        except Unreadable:
            return True  # whatever it was, it could not be carried out
        return before is None or before.by != decision.by

    async def _pages(self, query: IncidentQuery, sort: str) -> AsyncIterator[Sequence[IncidentStatus]]:
        """All statuses of a query, page by page: those that cannot be handled now must not hide later ones."""
        cursor: str | None = None
        while True:
            page = await self.incidents.find(query, sort=sort, limit=BULK, cursor=cursor)
            yield [stored.status for stored in page.statuses]
            cursor = page.cursor
            if cursor is None:
                return


def _queries(states: frozenset[IncidentState], due: int | None = None) -> Sequence[IncidentQuery]:
    """Queries for incidents that are not failures of our jobs, which have a job."""
    return [
        IncidentQuery(kind=kind.value, states=states, due=due, job="" if kind is ExceptionType.ABORT else None)
        for kind in sorted(EXCEPTIONS)
    ]
