"""Recommends the resources of tasks from what their latest jobs used. It only reads; nothing acts on its advice.

The measurements are in the documents of jobs: the peak memory, the wall time and the size of the inputs of the attempt that counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.jobs.job_document import State
from forestay.domain.jobs.right_sizing import Measured, SizeAdvice, advise, measured
from forestay.ports.clock import Clock
from forestay.ports.jobs.job_store import JobQuery, JobStore
from forestay.services.flows.flow_store import FlowStore
from forestay.services.shared.coalescing_cache import CoalescingCache

FRESH = 15.0
"""Seconds for which a result is cached."""
PAGE = 500
MOST_READ = 5000
"""The most jobs that are read for a result: those that ended last."""
MOST_OF_TASK = 1000
"""The most of these jobs from one task."""
ENDED = frozenset({State.COMPLETED, State.FAILED})


class TaskSizes(NamedTuple):
    """The advice for the jobs of one name, of one flow or of none."""

    flow: str
    """The name of the flow, for all its versions together; empty: jobs that were submitted one by one."""
    task: str
    advice: SizeAdvice


class SizeReport(NamedTuple):
    """The advice for the tasks of a tenant, those with the most waste first."""

    tasks: tuple[TaskSizes, ...]
    read: int
    """The number of jobs that were read."""
    whole: bool
    """Whether those are all jobs."""


@dataclass(slots=True)
class RightSizing:
    """The service."""

    store: JobStore
    flows: FlowStore
    clock: Clock
    _reports: CoalescingCache[tuple[str, str, str | None], SizeReport] = field(init=False)

    def __post_init__(self) -> None:
        self._reports = CoalescingCache(self.clock, FRESH)

    async def report(self, tenant: str, *, task: str = "", flow: str | None = None) -> SizeReport:
        """The tasks of a tenant: all, those of one name, those of one flow (empty: of none); at most some seconds old."""
        return await self._reports.get((tenant, task, flow), lambda: self._report(tenant, task, flow))

    async def _report(self, tenant: str, task: str, flow: str | None) -> SizeReport:
        query = JobQuery(tenant, ENDED, anyof={"name": [task]} if task else {})
        by_task: dict[tuple[str, str], list[Measured]] = {}
        read, cursor = 0, None
        while read < MOST_READ:
            page = await self.store.search(query, sort="-changed", limit=PAGE, cursor=cursor)
            for stored in page.jobs:
                job = measured(stored.document)
                if job is None:
                    continue
                whose = await self.flows.name_of(stored.document)
                if flow is None or whose == flow:
                    jobs = by_task.setdefault((whose, stored.document.name), [])
                    if len(jobs) < MOST_OF_TASK:
                        jobs.append(job)
            read, cursor = read + len(page.jobs), page.cursor
            full = task and flow is not None and len(by_task.get((flow, task), ())) >= MOST_OF_TASK
            if cursor is None or full:
                break
        tasks = [TaskSizes(*name, advise(jobs[::-1])) for name, jobs in by_task.items()]
        tasks.sort(key=lambda sizes: (-_spare(sizes.advice), sizes.flow, sizes.task))
        return SizeReport(tuple(tasks), read, cursor is None)


def _spare(advice: SizeAdvice) -> float:
    return advice.backtest.wasted - advice.backtest.would_waste if advice.backtest is not None else 0.0
