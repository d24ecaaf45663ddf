"""Resumes runs: a run that has ended continues under its own id and keeps what had succeeded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from forestay.domain.flows.definition.flow_format import PYTHON, format_of
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.definition.flow_version import flow_as_plain
from forestay.domain.flows.execution.flow_run import FlowRun
from forestay.domain.flows.execution.grown_resumption import FormerTask, grown_refusal, resume_grown
from forestay.domain.flows.execution.resumption import Resumption, resume_refusal, resume_run
from forestay.ports.errors import Conflict
from forestay.ports.flows.flow_engine import FlowEngine, RunStart, RunSummary
from forestay.services.flows.flow_store import FlowStore

NOT_ENDED = "the run has not ended"


class PlannedResumption(NamedTuple):
    """The effects of resuming a run, and the request that starts it."""

    start: RunStart
    resumption: Resumption


@dataclass(slots=True)
class RunResumer:
    """The service."""

    flows: FlowStore
    engine: FlowEngine

    async def plan(self, run: RunSummary, *, task: str, changes: Mapping[str, object], at: int) -> PlannedResumption:
        """Plan the resumption of a run; `Conflict` if it cannot be resumed in this way."""
        if run.ended is None:
            raise Conflict(NOT_ENDED)
        if run.above:
            raise Conflict(f"it is the run of a sub-flow; resume run {run.above}, to which it belongs")
        plan = await self.flows.plan(run.tenant, run.version)
        state = dict(await self.engine.state(run.run))
        if plan.grown:
            return await self._plan_python(run, plan, state, task=task, changes=changes, at=at)
        ended = FlowRun.from_plain(plan, state)
        if refusal := resume_refusal(ended, task=task, changes=changes):
            raise Conflict(refusal)
        resumed = {"state": state, "task": task, "changes": dict(changes)}
        start = RunStart(
            run.run, run.tenant, run.owner, run.version, run.name, flow_as_plain(plan.flow), ended.params, resumed=resumed
        )  # fmt: skip
        return PlannedResumption(start, resume_run(ended, at=at, task=task, changes=changes))

    async def _plan_python(
        self,
        run: RunSummary,
        plan: FlowPlan,
        state: dict[str, Any],
        *,
        task: str,
        changes: Mapping[str, object],
        at: int,
    ) -> PlannedResumption:
        """The run of a Python flow goes on with the source that it carries, from where its function was last started."""
        plain = (await self.flows.grown(run.tenant, run.version)).as_plain()
        if format_of(plain) != PYTHON:
            raise Conflict("only runs of flows in YAML and in Python can be resumed; start a new run")
        earlier = state.pop("earlier", None)
        if earlier is None:
            raise Conflict("the orchestrators of this run are of an earlier release, which cannot resume it")
        former = [FormerTask.from_plain(each) for each in earlier["former"]]
        known = {each.name for each in former}
        # What the function finds again is in `earlier`; the rest is what its last checkpoint refers to.
        state["instances"] = [
            {name: value for name, value in instance.items() if name != "after"}
            for instance in state["instances"]
            if instance["id"] not in known
        ]
        ended = FlowRun.from_plain(plan, state)
        if refusal := grown_refusal(ended, former, task=task, changes=changes):
            raise Conflict(refusal)
        resumed = {"state": state, "earlier": earlier, "task": task, "changes": dict(changes)}
        start = RunStart(run.run, run.tenant, run.owner, run.version, run.name, plain, ended.params, resumed=resumed)
        return PlannedResumption(start, resume_grown(ended, former, at=at, task=task, changes=changes).resumption)

    async def resume(self, planned: PlannedResumption) -> None:
        """Resume the run; `Conflict` if it has been resumed by someone else meanwhile."""
        if not await self.engine.start(planned.start):
            raise Conflict(NOT_ENDED)
