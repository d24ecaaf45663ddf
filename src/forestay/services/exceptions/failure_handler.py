"""Answers the failures of jobs: evidence, cause, decision, act; each is written down before the next.

A failure is a job that stands in the state `faulted` and is due. That is the queue: there is no other one to lose. The server that takes a bad end handles it at
once; what it leaves behind when it dies is found by any reconciler. Both may work on the same failure: the incident and the decision on it are create-only, whoever comes
second acts by the recorded ones, and the act itself is one version-checked write on the job, which only the failure it was decided for allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from forestay.domain.exceptions.causes.attempt_evidence import evidence_of, find_cause
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import (
    CLOSED,
    Decision,
    Incident,
    IncidentState,
    IncidentStatus,
    status_of,
)
from forestay.domain.exceptions.safeguards.job_cost import cost_of
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.ports.clock import Clock
from forestay.ports.errors import Transient, Unreadable
from forestay.ports.exceptions.incident_store import SHOWN_AFTER, IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobQuery, JobStore, Stored
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.exceptions.act.failure_actions import FailureActions
from forestay.services.exceptions.decide.failure_decider import DEFAULT_POLICY, PLAYBOOK, FailureDecider
from forestay.services.exceptions.detect.failure_incident import failure_incident, failure_incident_id, is_about
from forestay.services.exceptions.detect.pending_failure import PendingFailure, pilot_of
from forestay.services.exceptions.record.decision_log import agreed_on, newest
from forestay.services.pilots.batch_status import BatchStatus
from forestay.services.shared.polling import poll_forever
from forestay.services.shared.quarantine import Quarantine

BULK = 500
READERS = 16
"""Logs that are read at the same time."""
LEFT_BEHIND = 5_000
"""Milliseconds after which a failure is surely not being handled by the server that took it."""
OPEN_FOR = 60_000
Found = TypeVar("Found", Stored, tuple[Stored, str], tuple[Stored, Incident])
REMEMBERED = 20_000
"""Pilots whose site is remembered."""


@dataclass(slots=True)
class FailureHandler:
    """The service; any number of servers and reconcilers run it."""

    store: JobStore
    incidents: IncidentStore
    clock: Clock
    classifier: Callable[[], Awaitable[Classifier]]
    deciding: FailureDecider
    acting: FailureActions
    pilots: PilotStore | None = None
    """Says through which site a pilot came; None: nobody knows."""
    batch: BatchStatus | None = None
    """Says how the batch jobs of lost pilots ended; None: nobody knows."""
    every: float = 2.0
    troubled: Callable[[str], None] = lambda _text: None
    handled: int = 0
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""
    _rules_seen: int = 0
    _sites: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Look for failures that were left behind."""
        await poll_forever(self.look, self.every, self.troubled)

    async def look(self) -> None:
        await self.deciding.get_ready()
        if self.deciding.rules_seen != self._rules_seen:
            seen = self.deciding.rules_seen
            await self.reconsider()
            self._rules_seen = seen
        now = self.clock.now()
        bounds = {"not_before": now, "changed": now - LEFT_BEHIND}
        query = JobQuery(states=frozenset({State.FAULTED}), at_most=bounds, held=False)
        cursor: str | None = None
        while True:
            # Page after page: failures that cannot be handled stay due, and must not hide those behind them.
            page = await self.store.search(query, sort="changed", limit=BULK, cursor=cursor)
            await self._together(page.jobs, self._look_at)
            cursor = page.cursor
            if cursor is None:
                return

    async def _look_at(self, jobs: Sequence[Stored]) -> None:
        rest = await self._go_on(jobs)
        await self._handle(await self._with_logs(rest))

    async def _together(
        self, failures: Sequence[Found], handle: Callable[[Sequence[Found]], Awaitable[object]]
    ) -> None:
        """Handle failures in one batch; if one of them makes that fail, each for itself, so that it fails alone."""
        try:
            if failures:
                await handle(failures)
        except Transient:
            raise
        except Exception:
            later = await self.quarantine.each(
                failures,
                lambda failure: handle([failure]),
                name=lambda failure: f"the failure of job {_job_of(failure).id}",
                troubled=self.troubled,
                failed=lambda failure, why: self._hold(_job_of(failure), why),
            )
            if later is not None:
                raise later from None

    async def _hold(self, document: JobDocument, why: str) -> None:
        """Hold a failure for a person that cannot be handled without one."""
        name = failure_incident_id(document)
        known = (await self.incidents.get_statuses([name])).get(name)
        if known is not None and known.status.state not in CLOSED:
            number = max(1, known.status.n)
            nothing = Decision(name, number, document.tenant, self.clock.now(), "", "")
            await self.acting.hold(PendingFailure(document, known.status, nothing), f"could not be handled: {why}")

    async def _go_on(self, jobs: Sequence[Stored]) -> Sequence[Stored]:
        """Act on failures that were decided and put off, by what is recorded; the others are given back."""
        ids = {job.document.id: failure_incident_id(job.document) for job in jobs}
        known = await self.incidents.get_statuses(list(ids.values()))
        waiting = {
            name: stored.status
            for name, stored in known.items()
            if stored.status.state is IncidentState.WAITING and stored.status.n
        }
        if not waiting:
            return jobs
        decisions = await self.incidents.get_decisions([(name, status.n) for name, status in waiting.items()])
        failures, rest = list[PendingFailure](), list[Stored]()
        for job in jobs:
            status = waiting.get(ids[job.document.id])
            decision = decisions.get((status.id, status.n)) if status is not None else None
            if status is None or decision is None:
                rest.append(job)
            else:
                failures.append(PendingFailure(job.document, status, decision))
        self.handled += await self.acting.act(await self._at_sites(failures))
        return rest

    async def resume(self, job: str, incident: str, n: int) -> bool:
        """Act now on a decision that was held, if its failure still stands: a person has agreed to it, or has let its group go on."""
        stored = (await self.store.get([job])).get(job)
        known = (await self.incidents.get_statuses([incident])).get(incident)
        decision = await self.incidents.get_decision(incident, n)
        if stored is None or known is None or decision is None or known.status.state in CLOSED:
            return False
        if stored.document.state is not State.FAULTED or failure_incident_id(stored.document) != incident:
            return False
        run = PendingFailure(stored.document, known.status, decision)
        self.handled += await self.acting.act(await self._at_sites([run]))
        return True

    async def wake(self, tenant: str, group: str) -> int:
        """Make the failures of a storm's group due that were held for a person, who has now said how it goes on; how many there are."""
        woken = await self._wake(tenant, group, IncidentState.HELD, IncidentState.WAITING)
        # A search is up to a second old; what is held later than that looks itself whether somebody has spoken (`FailureActions`).
        await asyncio.sleep(SHOWN_AFTER)
        return woken + await self._wake(tenant, group, IncidentState.HELD)

    async def _wake(self, tenant: str, group: str, *states: IncidentState) -> int:
        query = IncidentQuery(tenant=tenant, group=group, states=frozenset(states))
        woken, cursor, now = 0, None, self.clock.now()
        while True:
            page = await self.incidents.find(query, sort="at", limit=BULK, cursor=cursor)
            names = [stored.status.job for stored in page.statuses if stored.status.job]
            jobs = await self.quarantine.readable(self.store.get, names, self.troubled)
            failures = list[PendingFailure]()
            for other_stored in page.statuses:
                stored = jobs.get(other_stored.status.job)
                if stored is not None and failure_incident_id(stored.document) == other_stored.status.id:
                    made = Decision(other_stored.status.id, other_stored.status.n, tenant, now, "", "")
                    failures.append(PendingFailure(stored.document, other_stored.status, made))
            await self.acting.make_due(failures)
            woken, cursor = woken + len(failures), page.cursor
            if cursor is None:
                return woken

    async def reconsider(self) -> None:
        """What waits for a person may be answered by rules that were added since: by a new decision, which stands beside the first."""
        cursor: str | None = None
        query = IncidentQuery(kind=ExceptionType.ABORT.value, states=frozenset({IncidentState.HELD}))
        while True:
            page = await self.incidents.find(query, sort="at", limit=BULK, cursor=cursor)
            statuses = {stored.status.id: stored.status for stored in page.statuses if stored.status.job}
            known = await self.quarantine.readable(self.incidents.get_incidents, list(statuses), self.troubled)
            names = [status.job for status in statuses.values()]
            jobs = await self.quarantine.readable(self.store.get, names, self.troubled)
            stand = [
                (stored, incident)
                for incident in known.values()
                if (stored := jobs.get(incident.job)) is not None and is_about(incident, stored.document)
            ]
            await self._together(stand, partial(self._decide_again, statuses=statuses))
            cursor = page.cursor
            if cursor is None:
                return

    async def _decide_again(
        self, stand: Sequence[tuple[Stored, Incident]], statuses: Mapping[str, IncidentStatus]
    ) -> None:
        classifier, now = await self.classifier(), self.clock.now()
        failures: list[PendingFailure] = []
        logs = await self._with_logs([stored for stored, _ in stand])
        for (stored, incident), (_, printed) in zip(stand, logs, strict=True):
            document, status = stored.document, statuses[incident.id]
            evidence = await self._joined(document, evidence_of(document, printed))
            finding = find_cause(document, evidence, classifier)
            decision = await self.deciding.decide(document, evidence, finding, incident, now)
            # What the default policy says is no news: it has said so before, and a person was asked since.
            if decision.verdict != PLAYBOOK or decision.by == DEFAULT_POLICY:
                continue
            try:
                before = await self.incidents.get_decision(incident.id, status.n) if status.n else None
            except Unreadable:
                before = None  # whatever it was, it could not be carried out
            if before is None or before.by != decision.by:  # what the same rule could do it has done, or has asked for
                failures.append(PendingFailure(document, status, replace(decision, n=status.n + 1), incident))
        if failures:
            self.handled += await self.acting.act(await self._at_sites(await self._agree(failures)))

    async def _with_logs(self, jobs: Sequence[Stored]) -> Sequence[tuple[Stored, str]]:
        printed: list[str] = []
        for start in range(0, len(jobs), READERS):
            some = jobs[start : start + READERS]
            printed += await asyncio.gather(*(self._printed(stored.document) for stored in some))
        return list(zip(jobs, printed, strict=True))

    async def _printed(self, document: JobDocument) -> str:
        """What the last attempt printed, as the evidence beside it has it."""
        last = document.last
        if last is None:
            return ""
        for record in await self.store.find_records(kind="evidence", job=document.id, newest_first=True, limit=20):
            ending = record.body.get("ending")
            if isinstance(ending, Mapping) and ending.get("claim") == last.claim:
                return str(record.body.get("log_tail", ""))
        return ""

    async def handle(self, failures: Sequence[tuple[Stored, str]]) -> None:
        """Decide on each faulted job, with what its attempt printed, and act. `Transient` if the store does not answer: the failures stay due."""
        for start in range(0, len(failures), BULK):
            await self._together(failures[start : start + BULK], self._handle)

    async def _handle(self, failures: Sequence[tuple[Stored, str]]) -> None:
        found_failures = await self._decide(failures)
        if not found_failures:
            return
        new = await self.incidents.add_incidents(
            [(failure.incident, failure.status) for failure in found_failures if failure.incident]
        )
        agreed = await self._at_sites(await self._agree(found_failures))
        if not all(new):
            agreed = await self._newest(agreed)
        first = [failure for failure, is_new in zip(agreed, new, strict=True) if is_new]
        self.handled += await self.acting.act(agreed, new=first)

    async def _decide(self, failures: Sequence[tuple[Stored, str]]) -> Sequence[PendingFailure]:
        classifier = await self.classifier()
        await self.deciding.get_ready()
        now = self.clock.now()
        found_failures: list[PendingFailure] = []
        for stored, log_tail in failures:
            document = stored.document
            if document.state is not State.FAULTED:
                continue
            try:
                evidence = await self._joined(document, evidence_of(document, log_tail))
                finding = find_cause(document, evidence, classifier)
                incident = failure_incident(document, evidence, finding, now)
                decision = await self.deciding.decide(document, evidence, finding, incident, now)
            except Transient:
                raise
            except Exception as error:
                why = f"{type(error).__name__}: {error}; it stays due"
                self.quarantine.report(f"the failure of job {document.id}", why, self.troubled)
                continue
            status = status_of(incident, due=now + OPEN_FOR, core_seconds=cost_of(document))
            found_failures.append(PendingFailure(document, status, decision, incident))
            await asyncio.sleep(0)  # a log may take a millisecond to read, and others wait for this process
        return found_failures

    async def _joined(self, document: JobDocument, evidence: Evidence) -> Evidence:
        return evidence if self.batch is None else await self.batch.joined(document, evidence)

    async def _agree(self, failures: Sequence[PendingFailure]) -> Sequence[PendingFailure]:
        return _decided(failures, await agreed_on(self.incidents, [failure.decision for failure in failures]))

    async def _newest(self, failures: Sequence[PendingFailure]) -> Sequence[PendingFailure]:
        return _decided(failures, await newest(self.incidents, [failure.decision for failure in failures]))

    async def _at_sites(self, failures: Sequence[PendingFailure]) -> Sequence[PendingFailure]:
        """With the site that the last attempt's pilot came through."""
        pilots = self.pilots
        if pilots is None:
            return failures
        if len(self._sites) > REMEMBERED:
            self._sites.clear()
        named = [(failure, pilot_of(failure.document)) for failure in failures]
        for name in dict.fromkeys(pilot for _, pilot in named if pilot and pilot not in self._sites):
            stored_pilot = await pilots.get_pilot(name)
            self._sites[name] = stored_pilot.pilot.site if stored_pilot is not None else ""
        return [failure._replace(site=self._sites.get(pilot, "")) for failure, pilot in named]


def _job_of(failure: Stored | tuple[Stored, object]) -> JobDocument:
    return failure.document if isinstance(failure, Stored) else failure[0].document


def _decided(failures: Sequence[PendingFailure], decisions: Sequence[Decision]) -> Sequence[PendingFailure]:
    return [failure._replace(decision=decision) for failure, decision in zip(failures, decisions, strict=True)]
