"""Reads runs for the Workflow Execution Service: their list, states and tasks.

A page of runs costs one search and one query for each run that has not ended; final states are cached here, and kept in the store for the time after the
engine has forgotten the run.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from forestay.domain.flows.definition.flow_pattern import SubflowPattern, WorkletPattern
from forestay.domain.flows.execution.run_names import run_of
from forestay.formats.flows.run_public import task_public
from forestay.formats.ga4gh.wes_run import ENDED, RUN_STATES, RunRequest, WesRunState, request_from_json, state_of
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound
from forestay.ports.flows.flow_engine import FlowEngine, RunQuery
from forestay.ports.jobs.job_store import MAX_PAGE, JobStore, Record
from forestay.services.flows.flow_store import FlowStore
from forestay.services.insertion.wes_run_starter import RUN, record_of

END = "wes-end"
CANCEL = "wes-cancel"
AT_ONCE = 20
"""Concurrent queries to the engine for one page."""
REMEMBERED = 50_000
MAX_SUB_RUNS = 10_000
COUNTS_LAST = 5.0
"""Seconds for which counts are cached."""


class RunStatus(NamedTuple):
    """The state of a run."""

    state: WesRunState
    started: int
    ended: int | None


class WesRun(NamedTuple):
    """A run requested through the Workflow Execution Service."""

    id: str
    at: int
    owner: str
    request: RunRequest
    status: RunStatus


class RunCursor(NamedTuple):
    """The position in a list."""

    at: int
    id: str
    snapshot: int
    """When the first page was requested: later runs are not part of the list."""


class WesRunPage(NamedTuple):
    """Some runs, oldest first; no position: this was the last page."""

    runs: Sequence[WesRun]
    position: RunCursor | None


class SubRun(NamedTuple):
    """The run of a sub-flow."""

    id: str
    name: str


@dataclass(slots=True)
class WesRuns:
    """The service."""

    store: JobStore
    engine: FlowEngine
    flows: FlowStore
    clock: Clock
    _ended: OrderedDict[str, RunStatus] = field(default_factory=OrderedDict)
    _counts: dict[str, tuple[float, Mapping[str, int]]] = field(default_factory=dict)

    async def counts(self, tenant: str) -> Mapping[str, int]:
        """The number of a tenant's runs in each state, as far as the engine remembers; some seconds old."""
        now = self.clock.monotonic()
        known = self._counts.get(tenant)
        if known is None or now - known[0] > COUNTS_LAST:
            found_counts = await asyncio.gather(
                *(self.engine.count(RunQuery(tenant, state=run_state)) for run_state in RUN_STATES)
            )
            counts: dict[str, int] = {}
            for state, number in zip(RUN_STATES, found_counts, strict=True):
                counts[state_of(state).value] = counts.get(state_of(state).value, 0) + number
            known = self._counts[tenant] = (now, counts)
        return known[1]

    async def page(self, tenant: str, *, limit: int, position: RunCursor | None = None) -> WesRunPage:
        """The runs of a tenant from a position on."""
        first = position or RunCursor(0, "", self.clock.now())
        records = await self._after(tenant, first, limit + 1)
        more = len(records) > limit
        records = records[:limit]
        statuses = await self.statuses(tenant, {record.job: record.at for record in records})
        runs = [_run(record, statuses[record.job]) for record in records]
        return WesRunPage(runs, RunCursor(records[-1].at, records[-1].id, first.snapshot) if more else None)

    async def _after(self, tenant: str, position: RunCursor, wanted: int) -> list[Record]:
        """The given number of records after a position."""
        after = (position.at, position.id) if position.id else None
        records = await self.store.find_records(
            kind=RUN, tenant=tenant, since=position.at, after=after, limit=min(wanted, MAX_PAGE)
        )
        return [record for record in records if record.at <= position.snapshot]

    async def get(self, tenant: str, run: str) -> WesRun | None:
        """A run that was requested here; None: there is none, though such a run may exist."""
        record = await self.store.get_record(record_of(run))
        if record is None or record.tenant != tenant:
            return None
        return _run(record, (await self.statuses(tenant, {run: record.at}))[run])

    async def statuses(self, tenant: str, runs: Mapping[str, int]) -> Mapping[str, RunStatus]:
        """The states of runs; `runs` maps each to the time of its request."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(run: str, at: int) -> RunStatus:
            async with turns:
                return await self._status(tenant, run, at)

        known = {run: self._ended[run] for run in runs if run in self._ended}
        missing = [run for run in runs if run not in known]
        statuses = await asyncio.gather(*(one(run, runs[run]) for run in missing))
        return known | dict(zip(missing, statuses, strict=True))

    async def _status(self, tenant: str, run: str, at: int) -> RunStatus:
        try:
            flow_run = await self.engine.describe(run)
        except NotFound:
            return await self._kept(run, at)
        cancelled = False
        if state_of(flow_run.state, cancelled=True) is not state_of(flow_run.state):
            cancelled = await self.store.get_record(f"{CANCEL}:{run}") is not None
        state = state_of(flow_run.state, cancelled=cancelled)
        # A run is shown as ended only when it has ended: its last messages are sent before that.
        if state in ENDED and flow_run.ended is None:
            state = WesRunState.CANCELING if cancelled else WesRunState.RUNNING
        status = RunStatus(state, at, flow_run.ended)
        if state in ENDED:
            body = {"state": state.value, "ended": flow_run.ended}
            await self.store.add_records([Record(f"{END}:{run}", tenant, END, run, self.clock.now(), body)])
            self._remember(run, status)
        return status

    async def _kept(self, run: str, at: int) -> RunStatus:
        end = await self.store.get_record(f"{END}:{run}")
        if end is None:
            return RunStatus(WesRunState.UNKNOWN, at, None)
        return RunStatus(WesRunState(str(end.body["state"])), at, int(str(end.body["ended"])))

    def _remember(self, run: str, status: RunStatus) -> None:
        self._ended[run] = status
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    async def note_cancel(self, tenant: str, run: str, by: str) -> None:
        """Record a request to cancel the run, before the run is told."""
        record = Record(f"{CANCEL}:{run}", tenant, CANCEL, run, self.clock.now(), {"by": by})
        await self.store.add_records([record])

    async def cancelled_by(self, run: str) -> str:
        """Who first requested that a run be cancelled; empty: nobody."""
        record = await self.store.get_record(f"{CANCEL}:{run}")
        return str(record.body["by"]) if record is not None else ""

    async def sub_runs(self, tenant: str, run: str, version: str) -> Sequence[SubRun]:
        """The runs of the sub-flows that a run has started."""
        try:
            state = await self.engine.state(run)
            plan = await self.flows.plan(tenant, version)
        except NotFound:
            return ()
        sub_runs: list[SubRun] = []
        for instance in state["instances"]:
            task = plan.tasks.get(instance["task"])
            if task is not None and isinstance(task.task.pattern, SubflowPattern | WorkletPattern):
                sub_runs += _sub_runs(run, instance)
        return sub_runs[:MAX_SUB_RUNS]


def _sub_runs(run: str, instance: Mapping[str, Any]) -> Sequence[SubRun]:
    shown = task_public(instance)
    if not shown["round"]:
        return ()
    work = f"{instance['id']}@{shown['round']}"
    count = min(max(1, shown["count"]), MAX_SUB_RUNS)
    many = shown["count"] > 1
    return [SubRun(run_of(run, work, at), f"{instance['id']}[{at}]" if many else instance["id"]) for at in range(count)]


def _run(record: Record, status: RunStatus) -> WesRun:
    request = record.body["request"]
    assert isinstance(request, Mapping)  # noqa: S101 - we wrote it
    return WesRun(record.job, record.at, str(record.body["owner"]), request_from_json(request), status)
