"""Usage over a period: jobs submitted and ended, waiting times, failures by cause, and what was recovered automatically.

Nothing is stored for it: everything is counted from the jobs and incidents in the store. Counts cover all of them; facts that only documents contain (waits, the outcome
of a failure) are read from a number of the newest, and the result says how many those were. A result is cached for some seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from forestay.domain.exceptions.incidents.incident import Decision, IncidentStatus
from forestay.domain.jobs.job_document import FINAL, JobDocument, State, lane_named
from forestay.domain.rules.incident_outcome import JUDGED, OutcomeKind, faulted_job_came
from forestay.ports.clock import Clock
from forestay.ports.exceptions.incident_store import MAX_FOUND, IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobQuery, JobStore
from forestay.services.shared.coalescing_cache import CoalescingCache

FRESH = 15.0
"""Seconds for which a result is cached."""
MOST_FAILURES = 2 * MAX_FOUND
"""The most incidents of a span whose jobs are read, newest first."""
WAITS_A_STEP = 20
"""The most jobs of each step whose waits are read: those that ended last in it."""
MINUTE = 60_000


class HistorySpan(StrEnum):
    """How far back, and in which steps."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


STEPS: Mapping[HistorySpan, tuple[int, int]] = {
    HistorySpan.HOUR: (2 * MINUTE, 30),
    HistorySpan.DAY: (60 * MINUTE, 24),
    HistorySpan.WEEK: (6 * 60 * MINUTE, 28),
    HistorySpan.MONTH: (24 * 60 * MINUTE, 30),
}
"""Milliseconds of a step, and the number of steps. The last one is not over yet."""


class WaitTimes(NamedTuple):
    """How long jobs waited from their submission to their first claim, in seconds; None where no job is known."""

    looked: int
    median: float | None
    most: float | None
    """The 90th percentile."""


@dataclass(slots=True)
class FailedJobOutcomes:
    """The outcomes of jobs that had a failure, each job counted once."""

    jobs: int = 0
    came: Counter[OutcomeKind] = field(default_factory=Counter)
    saved: float = 0.0
    """Core-seconds of attempts that succeeded after a failure on which no person acted."""

    def take(self, document: JobDocument | None, *, by_person: bool = False) -> None:
        """``by_person``: a person launched a playbook for one of its failures, which its story does not tell."""
        came, core_seconds = faulted_job_came(document)
        if came is OutcomeKind.RECOVERED and by_person:
            came = OutcomeKind.BY_HAND
        self.jobs += 1
        self.came[came] += 1
        if came is OutcomeKind.RECOVERED:
            self.saved += core_seconds

    @property
    def judged(self) -> int:
        return sum(self.came[outcome_kind] for outcome_kind in JUDGED)


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The usage in a span of time."""

    span: HistorySpan
    at: int
    since: int
    step: int
    submitted: Sequence[int]
    ended: Sequence[Mapping[str, int]]
    """By state, for each step."""
    waits: Sequence[WaitTimes]
    wait: WaitTimes
    status: Mapping[str, int]
    """Jobs that have not ended, by state, now."""
    causes: Sequence[Mapping[str, int]]
    """Incidents by cause, for each step."""
    incidents: Mapping[str, int]
    """Incidents by their present state."""
    looked: int
    """The number of the span's newest incidents whose jobs were read."""
    fates: FailedJobOutcomes
    by_cause: Mapping[str, FailedJobOutcomes]


@dataclass(slots=True)
class UsageHistory:
    """The service."""

    store: JobStore
    incidents: IncidentStore
    clock: Clock
    _looks: CoalescingCache[tuple[str, HistorySpan], UsageReport] = field(init=False)

    def __post_init__(self) -> None:
        self.forget()

    async def look(self, tenant: str, span: HistorySpan) -> UsageReport:
        """The report of a span, at most some seconds old."""
        return await self._looks.get((tenant, span), lambda: self._look(tenant, span))

    def forget(self) -> None:
        """Discard the cached reports."""
        self._looks = CoalescingCache(self.clock, FRESH)

    async def _look(self, tenant: str, span: HistorySpan) -> UsageReport:
        now = self.clock.now()
        step, steps = STEPS[span]
        since = (now // step - steps + 1) * step
        until = since + step * steps
        made = JobQuery(tenant, at_least={"created": since}, at_most={"created": until - 1})
        over = JobQuery(tenant, FINAL, at_least={"changed": since}, at_most={"changed": until - 1})
        happened = IncidentQuery(tenant, since=since, until=until)
        submitted = await self.store.tally(made, over="created", step=step, by="tenant")
        ended = await self.store.tally(over, over="changed", step=step, by="state")
        waits = [await self._waits(tenant, since + place * step, step, many) for place, many in enumerate(ended)]
        status = await self.open_jobs(tenant)
        causes = await self.incidents.tally(happened, step=step, by="cause")
        states = await self.incidents.count(happened, by="state")
        newest = await self._newest(happened) if states else []
        fates, by_cause = await self._fates(newest)
        return UsageReport(
            span=span, at=now, since=since, step=step, submitted=[sum(counts.values()) for counts in submitted], ended=ended,
            waits=[_summed(wait) for wait in waits], wait=_summed([wait for each in waits for wait in each]),
            status=status, causes=causes, incidents=states, looked=len(newest), fates=fates, by_cause=by_cause,
        )  # fmt: skip

    async def open_jobs(self, tenant: str) -> dict[str, int]:
        """The jobs that have not ended, by state. Waiting jobs are counted by lane, as servers do to find work: stores have an index for that."""
        lanes = await self.store.count(JobQuery(states=frozenset({State.AVAILABLE})), by="lane")
        queued = sum(many for lane, many in lanes.items() if lane_named(lane).tenant.split(">")[0] == tenant)
        counts = {State.AVAILABLE.value: queued} if queued else {}
        for state in (State.RUNNING, State.FAULTED):
            counts |= await self.store.count(JobQuery(tenant, frozenset({state})), by="state")
        return counts

    async def _waits(self, tenant: str, start: int, step: int, ended: Mapping[str, int]) -> list[float]:
        if not ended:
            return []
        bounds = {"changed": start}, {"changed": start + step - 1}
        query = JobQuery(tenant, FINAL, at_least=bounds[0], at_most=bounds[1])
        page = await self.store.search(query, sort="-changed", limit=WAITS_A_STEP)
        return [wait for job in page.jobs if (wait := first_wait(job.document)) is not None]

    async def _newest(self, query: IncidentQuery) -> list[IncidentStatus]:
        statuses: list[IncidentStatus] = []
        cursor: str | None = None
        while len(statuses) < MOST_FAILURES:
            page = await self.incidents.find(query, sort="-at", limit=MAX_FOUND, cursor=cursor)
            statuses += [stored.status for stored in page.statuses]
            cursor = page.cursor
            if cursor is None:
                break
        return statuses

    async def _fates(self, newest: Sequence[IncidentStatus]) -> tuple[FailedJobOutcomes, dict[str, FailedJobOutcomes]]:
        """The outcomes, each job counted once, under the cause of its newest incident."""
        causes: dict[str, str] = {}
        for status in newest:
            if status.job:
                causes.setdefault(status.job, status.cause)
        jobs = await self.store.get(sorted(causes)) if causes else {}
        launched = await self._launched(newest)
        whole, by_cause = FailedJobOutcomes(), dict[str, FailedJobOutcomes]()
        for job, cause in causes.items():
            document = jobs[job].document if job in jobs else None
            whole.take(document, by_person=job in launched)
            by_cause.setdefault(cause, FailedJobOutcomes()).take(document, by_person=job in launched)
        return whole, by_cause

    async def _launched(self, newest: Sequence[IncidentStatus]) -> frozenset[str]:
        """Jobs with a failure that was answered by a playbook launched by a person, alone or for a group: that is never the first decision."""
        again = {(status.id, status.n): status.job for status in newest if status.job and status.n > 1}
        names = sorted(again)
        decisions: dict[tuple[str, int], Decision] = {}
        for start in range(0, len(names), MAX_FOUND):
            decisions |= await self.incidents.get_decisions(names[start : start + MAX_FOUND])
        return frozenset(again[name] for name, decision in decisions.items() if decision.by_person)


def first_wait(document: JobDocument) -> float | None:
    """Seconds from a job's submission to its first claim; None where it had none, or its story no longer contains it."""
    if not document.history or document.history[0].rev > 1:
        return None
    claimed = next((line.at for line in document.history if line.event == "claim"), None)
    return None if claimed is None else max(0, claimed - document.created) / 1000


def _summed(waits: Sequence[float]) -> WaitTimes:
    if not waits:
        return WaitTimes(0, None, None)
    ordered = sorted(waits)
    return WaitTimes(len(ordered), ordered[len(ordered) // 2], ordered[(9 * len(ordered)) // 10])
