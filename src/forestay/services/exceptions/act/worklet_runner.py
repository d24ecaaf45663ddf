"""Starts the worklets of a playbook's step as runs of their own, and returns their results to the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forestay.domain.exceptions.incidents.incident import OWN_ENGINE
from forestay.domain.flows.commands import RunOutcome
from forestay.domain.flows.definition.flow_version import flow_as_plain
from forestay.domain.flows.events import VerbKind
from forestay.domain.playbooks.action import CompensateAction, Worklet, worklets_of
from forestay.domain.playbooks.playbook_run import StepEnd, WorkletEnded, run_name, worklet_run
from forestay.ports.errors import NotFound
from forestay.ports.flows.flow_engine import RunStart
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.services.exceptions.act.job_actions import ActionOutcome
from forestay.services.exceptions.act.playbook_runner import PlaybookRunner
from forestay.services.exceptions.detect.constraint_checker import ConstraintChecker
from forestay.services.exceptions.record.decision_log import StepRequest
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.run_starter import check_params

_WELL = frozenset({RunOutcome.COMPLETED.value, RunOutcome.FORCED_COMPLETE.value, RunOutcome.UNDONE.value})


@dataclass(frozen=True, slots=True)
class WorkletRunner:
    """The service."""

    playbooks: PlaybookRunner
    store: JobStore
    flows: FlowStore
    checks: ConstraintChecker
    """Checks whether a worklet's run may begin."""

    async def start_worklets(self, incident: str, n: int, step: int) -> None:
        """Start the worklets of a step that do not run yet. `Permanent` or `NotFound` if they can never start."""
        ask = await self.playbooks.documents.begin(incident, n, step)
        for place, worklet in enumerate(worklets_of(ask.do)):
            await self._start(ask, place, worklet)

    async def take_back(self, incident: str, n: int, step: int) -> StepEnd:
        """Return the results of a step's worklets to the run, once."""
        return await self.playbooks.documents.once(incident, n, step, self._take_back)

    async def worklets_ended(self, incident: str, n: int, step: int) -> Sequence[WorkletEnded]:
        """The worklets of a step that have ended, as the engine lists them."""
        playbook = await self.playbooks.playbook(incident, n)
        if not 0 <= step < len(playbook.steps) or not isinstance(playbook.steps[step].do, CompensateAction):
            return ()
        ended: list[WorkletEnded] = []
        for place in range(len(worklets_of(playbook.steps[step].do))):
            try:
                run = await self.playbooks.own_engine().describe(worklet_run(incident, n, step, place))
            except NotFound:
                continue  # not started yet; another process is about to
            if run.ended is not None:
                ended.append(WorkletEnded(step, place, run.state in _WELL, f"its run was {run.state}"))
        return ended

    async def _start(self, ask: StepRequest, place: int, worklet: Worklet) -> None:
        incident = ask.incident
        plan = await self.flows.plan(incident.tenant, worklet.flow)
        params = await self.playbooks.given(ask, worklet)
        if plan.grown:
            python = await self.flows.python(incident.tenant, worklet.flow)
            plain = python.as_plain()
            check_params({*python.params, *python.needed}, python.needed, params)
        else:
            plain = flow_as_plain(plan.flow)
            known = plan.flow.params
            check_params(known.keys(), [name for name, default in known.items() if default is None], params)
        above = incident.run if incident.engine == OWN_ENGINE else ""
        flow_ref = {"playbook": run_name(incident.id, ask.n), "step": ask.step, "place": place, "ancestor": above}
        run = worklet_run(incident.id, ask.n, ask.step, place)
        name = plan.flow.name
        check = await self.checks.run_begins(
            tenant=incident.tenant, owner=incident.owner, run=run, flow=worklet.flow, name=name, params=params
        )
        held = (check,) if check else ()
        start = RunStart(
            run, incident.tenant, incident.owner, worklet.flow, name, plain, params, worklet=flow_ref, held=held
        )
        await self.playbooks.own_engine().start(start)
        body = {"incident": incident.id, "n": ask.n, "step": ask.step, "run": incident.run}
        await self.store.add_records([Record(f"worklet:{run}", incident.tenant, "worklet", run, ask.at, body)])

    async def _take_back(self, ask: StepRequest) -> ActionOutcome:
        changes: dict[str, object] = {}
        for place, worklet in enumerate(worklets_of(ask.do)):
            if worklet.take:
                state = await self.playbooks.own_engine().state(worklet_run(ask.incident.id, ask.n, ask.step, place))
                outputs = state["outputs"]
                missing = sorted(name for name in worklet.take.values() if name not in outputs)
                if missing:
                    return ActionOutcome(done=False, detail=f"worklet {place} did not return {', '.join(missing)}")
                changes |= {name: outputs[output] for name, output in worklet.take.items()}
        if not ask.incident.run:
            return ActionOutcome(done=False, detail="no run submitted the job, so nothing can be returned")
        return await self.playbooks.verb(ask, VerbKind.SET_DATA, changes=changes)
