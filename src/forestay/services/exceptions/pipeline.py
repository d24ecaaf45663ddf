"""How exceptions are handled, from detection to the recorded outcome.

    detect      a failed attempt, a missed deadline, a trigger, … becomes an incident with everything that decides it
    decide      a rule, or the default policy where none concludes, makes a decision
    safeguards  chains of rules, approvals, the emergency stop, storms and rate limits: act now, later, or ask a person
    act         the decision is carried out; every action is a version-checked write or a workflow of the flow engine
    record      incident, decision and steps are create-only documents; the audit log; the incident's status

Exceptions are handled in batches. Any number of servers, orchestrators and reconcilers may run this: the second finds what was recorded and continues
from it. `recovery` continues unfinished ones.

An exception for which neither a rule nor the default policy has an answer is ignored and not recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from forestay.domain.exceptions.incidents.exception_policy import ExceptionAction
from forestay.domain.exceptions.incidents.incident import (
    CLOSED,
    DEFAULT_POLICY,
    OWN_ENGINE,
    Decision,
    Incident,
    IncidentState,
    IncidentStatus,
    failure_incident_id,
    status_of,
)
from forestay.domain.exceptions.safeguards.safeguards import cost_of
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.playbooks.action import RESENDING
from forestay.ports.clock import Clock
from forestay.ports.errors import Transient
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.jobs.job_store import JobStore, Stored
from forestay.services.exceptions.act.action_executor import ActionExecutor, ActionTaken
from forestay.services.exceptions.decide.decider import Decider
from forestay.services.exceptions.detect.failure_detector import FailedAttempt, FailureDetector, PastFailures
from forestay.services.exceptions.exception_event import ExceptionEvent, PendingException, incident_raised
from forestay.services.exceptions.record.decision_log import DecisionLog
from forestay.services.exceptions.safeguards.safeguards import Safeguards
from forestay.services.jobs.job_completions import FailureHandling
from forestay.services.shared.quarantine import Quarantine

BULK = 500
LEFT_BEHIND = 60_000
"""Milliseconds after which the process that recorded a decision is certainly not carrying it out any more."""
Found = TypeVar("Found", Stored, tuple[Stored, str], tuple[Stored, Incident])


class HandledException(NamedTuple):
    """The result of handling an exception."""

    incident: str
    """Empty: it was ignored and not recorded."""
    verdict: str
    """``ignore``, ``hold``, ``retry``, ``fail``, or ``playbook`` where a rule concluded."""
    decision: Decision | None = None

    @property
    def ignored(self) -> bool:
        return self.verdict == ExceptionAction.IGNORE

    @property
    def acts(self) -> bool:
        """Whether there is something to carry out."""
        return self.decision is not None and self.decision.playbook is not None


@dataclass(slots=True)
class ExceptionPipeline(FailureHandling):
    """The service."""

    store: JobStore
    incidents: IncidentStore
    detector: FailureDetector
    decider: Decider
    safeguards: Safeguards
    executor: ActionExecutor
    log: DecisionLog
    clock: Clock
    troubled: Callable[[str], None] = lambda _text: None
    failures: int = 0
    """Failures of jobs that were handled, for metrics."""
    exceptions: int = 0
    """Other exceptions that were recorded, for metrics."""
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what could not be handled."""

    # -- failures of jobs --------------------------------------------------------------------------------------

    async def handle_failures(self, failures: Sequence[tuple[Stored, str]]) -> None:
        """Handle faulted jobs, each with the last lines that its attempt printed. `Transient` if the store does not answer: the failures stay due."""
        for start in range(0, len(failures), BULK):
            await self.together(failures[start : start + BULK], self.handle_batch)

    async def handle_batch(self, failures: Sequence[tuple[Stored, str]]) -> None:
        """As `handle_failures`, in one batch: an error in one stops all of them."""
        await self.decider.get_ready()
        faulted = [(stored.document, log) for stored, log in failures if stored.document.state is State.FAULTED]
        past, now = await self.detector.history.before([document for document, _ in faulted]), self.clock.now()
        decided = [
            found
            for document, log_tail in faulted
            if (found := await self._decide_failure(document, log_tail, past, now)) is not None
        ]
        if not decided:
            return
        statuses = [
            status_of(failed.incident, due=now + LEFT_BEHIND, core_seconds=cost_of(failed.document))
            for failed, _ in decided
        ]
        new = await self.incidents.add_incidents(
            [(failed.incident, status) for (failed, _), status in zip(decided, statuses, strict=True)]
        )
        agreed = await self.log.agree([decision for _, decision in decided])
        if not all(new):
            agreed = await self.log.newest(agreed)
        pendings = [
            PendingException(failed.incident, status, decision, failed.document, failed.site)
            for (failed, _), status, decision in zip(decided, statuses, agreed, strict=True)
        ]
        first = [pending for pending, is_new in zip(pendings, new, strict=True) if is_new]
        await self.act(pendings, new=first)

    async def _decide_failure(
        self, document: JobDocument, log_tail: str, past: PastFailures, now: int
    ) -> tuple[FailedAttempt, Decision] | None:
        """None: it cannot be decided now and stays due."""
        try:
            failed = await self.detector.detect(document, log_tail, past, now)
            decision = await self.decider.decide_failure(failed, now)
        except Transient:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}; it stays due"
            self.quarantine.report(f"the failure of job {document.id}", why, self.troubled)
            return None
        await asyncio.sleep(0)  # a log may take a millisecond to read, and others wait for this process
        return failed, decision

    # -- other exceptions --------------------------------------------------------------------------------------

    async def handle(self, events: Sequence[ExceptionEvent]) -> Sequence[HandledException]:
        """Decide on each, and carry out the decisions. `Transient` if the store does not answer: repeating the call is safe."""
        handled = await self.record(events)
        await self.carry_out([exception.incident for exception in handled if exception.acts])
        return handled

    async def record(
        self, events: Sequence[ExceptionEvent], *, left_behind: int | None = LEFT_BEHIND
    ) -> Sequence[HandledException]:
        """Decide on each and record the decision; `carry_out` does the rest.

        ``left_behind``: after this many milliseconds a reconciler carries it out; None: the caller is certain to.
        """
        await self.decider.get_ready()
        now = self.clock.now()
        due = None if left_behind is None else now + left_behind
        handled: list[HandledException] = []
        for start in range(0, len(events), BULK):
            handled += await self._record(events[start : start + BULK], now, due)
        return handled

    async def _record(self, events: Sequence[ExceptionEvent], now: int, due: int | None) -> list[HandledException]:
        external = await self.detector.history.external.values()
        incidents = {event.id: incident_raised(event, external) for event in events}
        decisions = {name: await self._decide_or_hold(incident, now) for name, incident in incidents.items()}
        kept = {name: decision for name, decision in decisions.items() if not _forgettable(decision)}
        if not kept:
            return [HandledException("", ExceptionAction.IGNORE.value)] * len(events)
        recorded = [incidents[name] for name in kept]
        costs = await self._costs(recorded)
        new = await self.incidents.add_incidents([(incident, _status(incident, due, costs)) for incident in recorded])
        await self.safeguards.count([incident for incident, first in zip(recorded, new, strict=True) if first])
        agreed = await self.log.agree_readable(list(kept.values()))
        if not all(new):
            agreed = await self.log.newest(agreed)
        kept |= {decision.incident: decision for decision in agreed}
        for name in kept.keys() - {decision.incident for decision in agreed}:
            self.quarantine.report(f"incident {name}", "its decision cannot be read", self.troubled)
        self.exceptions += sum(new)
        settled = [
            PendingException(incidents[decision.incident], _status(incidents[decision.incident], due, costs), decision)
            for decision in agreed
            if decision.playbook is None
        ]
        await self.act(settled)
        return [_handled(kept.get(event.id)) for event in events]

    async def _costs(self, incidents: Sequence[Incident]) -> Mapping[str, int]:
        """The cost of another attempt, by job."""
        jobs = sorted({incident.job for incident in incidents if incident.job and incident.engine == OWN_ENGINE})
        known = await self.quarantine.readable(self.store.get, jobs, self.troubled) if jobs else {}
        return {name: cost_of(stored.document) for name, stored in known.items()}

    async def _decide_or_hold(self, incident: Incident, now: int) -> Decision:
        """The decision on an incident; a person is asked where it cannot be decided. `Transient` if the store does not answer."""
        try:
            return await self.decider.decide(incident, now)
        except Transient:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            self.quarantine.report(f"incident {incident.id}", why, self.troubled)
            detail = {"words": f"could not be decided on: {why}"}
            return Decision(
                incident.id, 1, incident.tenant, now, ExceptionAction.HOLD.value, DEFAULT_POLICY, detail=detail
            )

    async def carry_out(self, incidents: Sequence[str]) -> Sequence[ActionTaken]:
        """Act by the recorded decisions, except on incidents that are over or in progress.

        An incident that cannot be acted on is held for a person. `Transient` after all others were acted on: repeating the call is safe.
        """
        known = await self.quarantine.readable(self.incidents.get_incidents, incidents, self.troubled)
        statuses = await self.quarantine.readable(self.incidents.get_statuses, incidents, self.troubled)
        taken: list[ActionTaken] = []

        async def act_on(incident: Incident) -> None:
            status = statuses[incident.id].status if incident.id in statuses else None
            if status is None or status.state in CLOSED | {IncidentState.ACTING, IncidentState.HELD}:
                return
            decision = await self.incidents.get_decision(incident.id, max(1, status.n))
            if decision is not None and decision.playbook is not None:
                taken.append(await self.act_on(incident, status, decision))

        later = await self.quarantine.each(
            known.values(),
            act_on,
            name=lambda incident: f"incident {incident.id}",
            troubled=self.troubled,
            failed=lambda incident, why: self.hold(incident.id, why),
        )
        if later is not None:
            raise later
        return taken

    # -- safeguards and actions --------------------------------------------------------------------------------

    async def act(
        self, pendings: Sequence[PendingException], *, new: Sequence[PendingException] = ()
    ) -> Mapping[str, ActionTaken]:
        """Ask the safeguards and do what they permit; `new`: failures that were never counted for storms."""
        permits = await self.safeguards.check(pendings, new)
        taken = await self.executor.carry_out(pendings, permits)
        self.failures += sum(1 for pending in pendings if pending.job is not None and pending.id in taken)
        return taken

    async def act_on(
        self, incident: Incident, status: IncidentStatus, decision: Decision, *, by_person: bool = False
    ) -> ActionTaken:
        """Carry out a decision on an exception that is not the failure of one of our jobs; a person's decision bypasses the safeguards."""
        pending = PendingException(incident, status, decision, by_person=by_person)
        steps = pending.playbook.steps if pending.playbook is not None else ()
        if incident.job and incident.engine == OWN_ENGINE and any(step.action in RESENDING for step in steps):
            stored = (await self.store.get([incident.job])).get(incident.job)
            pending = replace(pending, core_seconds=cost_of(stored.document) if stored is not None else 0)
        return (await self.act([pending]))[incident.id]

    async def pending_failure(
        self, incident: Incident, status: IncidentStatus, decision: Decision, job: JobDocument
    ) -> PendingException:
        return PendingException(incident, status, decision, job, await self.detector.site_of(job))

    # -- an error in one must not stop the others --------------------------------------------------------------

    async def together(self, failures: Sequence[Found], handle: Callable[[Sequence[Found]], Awaitable[object]]) -> None:
        """Handle failures in one batch; if the batch fails, handle each one separately, so that only the bad one fails."""
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
                failed=lambda failure, why: self._hold_failure(_job_of(failure), why),
            )
            if later is not None:
                raise later from None

    async def _hold_failure(self, document: JobDocument, why: str) -> None:
        """Hold a failure that cannot be handled without a person."""
        name = failure_incident_id(document)
        known = (await self.incidents.get_statuses([name])).get(name)
        if known is not None and known.status.state not in CLOSED:
            await self.executor.hold(known.status, document, f"could not be handled: {why}")

    async def hold(self, incident: str, why: str) -> None:
        known = (await self.incidents.get_statuses([incident])).get(incident)
        if known is not None:
            await self.executor.hold(known.status, None, f"could not be handled: {why}")


def _job_of(failure: Stored | tuple[Stored, object]) -> JobDocument:
    return failure.document if isinstance(failure, Stored) else failure[0].document


def _status(incident: Incident, due: int | None, costs: Mapping[str, int]) -> IncidentStatus:
    status = replace(status_of(incident, core_seconds=costs.get(incident.job, 0)), due=due)
    # A job of another engine cannot be looked up here.
    return status if incident.engine == OWN_ENGINE else replace(status, job="")


def _forgettable(decision: Decision) -> bool:
    """Whether nothing is done, and no rule in shadow mode would have acted."""
    return decision.verdict == ExceptionAction.IGNORE and "shadow" not in decision.detail


def _handled(decision: Decision | None) -> HandledException:
    if decision is None:
        return HandledException("", ExceptionAction.IGNORE.value)
    return HandledException(decision.incident, decision.verdict, decision)
