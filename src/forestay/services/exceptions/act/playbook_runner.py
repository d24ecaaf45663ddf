"""Runs the steps of playbooks through the same services that people use. `StepLog` records each step, and its id makes every effect idempotent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from forestay.domain.exceptions.incidents.dispatcher import can_roll_back
from forestay.domain.exceptions.incidents.exception_type import CONSTRAINTS, RAISED
from forestay.domain.exceptions.incidents.incident import (
    CLOSED,
    HELD_FOR_A_PERSON,
    OWN_ENGINE,
    Incident,
    IncidentState,
    StepMark,
    step_id,
    step_record_id,
)
from forestay.domain.exceptions.incidents.retry_policy import AfterLastLevel
from forestay.domain.flows.commands import RunOutcome as RunOutcome
from forestay.domain.flows.definition.expression import Path, inside
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.execution.constraints import holder_of
from forestay.domain.playbooks.action import (
    Action,
    ActionKind,
    ActionTarget,
    Hold,
    Notify,
    Rollback,
    Select,
    Steer,
    Worklet,
    target_of,
)
from forestay.domain.playbooks.playbook import Playbook, playbook_from_plain
from forestay.domain.playbooks.playbook_run import PlaybookRunState, StepEnd, StepState
from forestay.domain.playbooks.worklet_data import filled
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound, Permanent, Transient
from forestay.ports.exceptions.exception_engine import ExceptionEngine
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.ports.jobs.job_store import JobStore, Record, Written
from forestay.services.exceptions.act.job_actions import ActionOutcome, JobActions, awaited_notes
from forestay.services.exceptions.record.decision_log import StepLog, StepRequest, end_of
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.flow_suspensions import FlowSuspensions

TRIES = 10
VERBS: Mapping[ActionKind, VerbKind] = {
    ActionKind.REMOVE: VerbKind.REMOVE,
    ActionKind.SUSPEND: VerbKind.SUSPEND,
    ActionKind.CONTINUE: VerbKind.CONTINUE,
    ActionKind.RESTART: VerbKind.RESTART,
    ActionKind.FORCE_COMPLETE: VerbKind.FORCE_COMPLETE,
    ActionKind.FORCE_FAIL: VerbKind.FORCE_FAIL,
    ActionKind.HOLD: VerbKind.SUSPEND,
}
STANDS: Mapping[PlaybookRunState, IncidentState] = {
    PlaybookRunState.COMPLETE: IncidentState.COMPLETE,
    PlaybookRunState.HELD: IncidentState.HELD,
    PlaybookRunState.FAILED: IncidentState.HELD,
    PlaybookRunState.STOPPED: IncidentState.HELD,
}
"""The state of an incident when a run of its playbook is over: one that did not succeed needs a person."""
_WELL = frozenset({RunOutcome.COMPLETED.value, RunOutcome.FORCED_COMPLETE.value, RunOutcome.UNDONE.value})


class Performer(Protocol):
    """Carries out actions that need an optional component: staging, peers, the proxy."""

    async def __call__(self, ask: StepRequest) -> ActionOutcome: ...


@dataclass(slots=True)
class PlaybookRunner:
    """The service."""

    incidents: IncidentStore
    store: JobStore
    engine: FlowEngine | None
    flows: FlowStore
    suspensions: FlowSuspensions
    jobs: JobActions
    clock: Clock
    others: Mapping[ActionKind, Performer] = field(default_factory=dict)
    elsewhere: ExceptionEngine | None = None
    """The port to all other engines."""
    abroad: Performer | None = None
    """Carries out actions on their runs."""

    # -- steps -------------------------------------------------------------------------------------------------

    @property
    def documents(self) -> StepLog:
        return StepLog(self.incidents, self.clock)

    async def playbook(self, incident: str, n: int) -> Playbook:
        """The playbook of a recorded decision; `NotFound`."""
        return await self.documents.playbook(incident, n)

    async def do_step(self, incident: str, n: int, step: int, *, release: str = "") -> StepEnd:
        """Carry out a step, once; returns its result, also if it ended long ago."""
        return await self.documents.once(incident, n, step, self.perform, release=release)

    async def do_only_step(self, incident: str, n: int) -> StepEnd:
        """Carry out a playbook of one step, and record the incident's status."""
        end = await self.do_step(incident, n, 0)
        state = PlaybookRunState.COMPLETE if end.state is StepState.DONE else PlaybookRunState.FAILED
        await self.finish(incident, n, state, reason=end.detail)
        return end

    async def finish(
        self, incident: str, n: int, state: PlaybookRunState, *, reason: str = "", held: Sequence[str] = ()
    ) -> None:
        """Record the incident's status after its playbook. An incident that has changed since keeps its status."""
        if state is PlaybookRunState.COMPLETE and await self._keeps(incident, n):
            state = PlaybookRunState.HELD
        if state is PlaybookRunState.COMPLETE:
            known = (await self.incidents.get_incidents([incident])).get(incident)
            if known is not None:
                await self.lift(known)
        for _ in range(TRIES):
            stored = (await self.incidents.get_statuses([incident])).get(incident)
            if stored is None or stored.status.n > n or stored.status.state in CLOSED:
                return
            note = reason or (HELD_FOR_A_PERSON if state is PlaybookRunState.HELD else "")
            if held:
                note = f"{note}; suspended: {', '.join(held)}" if note else f"suspended: {', '.join(held)}"
            moved = stored.status.moved(STANDS[state], now=self.clock.now(), n=n, note=note)
            if moved.state is stored.status.state and moved.n == stored.status.n and moved.note == stored.status.note:
                return
            (result,) = await self.incidents.put_statuses([(moved, stored.version)])
            if isinstance(result, Written):
                return
        raise Transient("the status of the incident could not be stored; try again")

    async def lift(self, incident: Incident) -> None:
        """Release the task or run that waited because of an unmet constraint, now that the exception was answered."""
        if incident.kind in CONSTRAINTS and incident.engine == OWN_ENGINE and incident.run:
            await self._let_go(incident, "" if incident.kind.of_run else incident.instance)

    async def _let_go(self, incident: Incident, instance: str) -> None:
        now = self.clock.now()
        # A new id each time: a verb that was refused because nothing waited yet must not be refused for ever.
        verb = Verb(
            now,
            f"lift:{incident.id}:{now}",
            VerbKind.CONTINUE,
            instance=instance,
            by="playbook",
            holder=holder_of(incident.id),
            reason=f"incident {incident.id} is answered",
        )
        with suppress(NotFound):  # it has ended
            await (await self.engine_of(incident)).send_verb(incident.run, verb)

    async def release(self, incident: str) -> None:
        """Release what the last playbook of an incident has suspended: a person has answered the incident, so nothing needs to wait for it.

        The job itself is not touched: the person has steered it. `Transient` if the engine does not answer: repeating the call is safe.
        """
        status = (await self.incidents.get_statuses([incident])).get(incident)
        known = (await self.incidents.get_incidents([incident])).get(incident)
        if status is None or known is None or not known.run or known.engine != OWN_ENGINE or not status.status.n:
            return
        n = status.status.n
        decision = await self.incidents.get_decision(incident, n)
        if decision is None or decision.playbook is None:
            return
        for place, step in enumerate(playbook_from_plain(decision.playbook).steps):
            target = target_of(step.do)
            if step.action not in (ActionKind.SUSPEND, ActionKind.HOLD) or target in (ActionTarget.JOB, None):
                continue
            holder = step_id(incident, n, place)
            if target is ActionTarget.ALL_RUNS:
                flow = known.flow or (await (await self.engine_of(known)).describe(known.run)).version
                await self.suspensions.let_go(known.tenant, flow, holder)
                continue
            verb = Verb(
                self.clock.now(),
                f"release:{holder}",
                VerbKind.CONTINUE,
                instance=known.instance if target is ActionTarget.TASK else "",
                by="playbook",
                holder=holder,
                reason=f"incident {incident} was answered by a person",
                ancestors=target is ActionTarget.ANCESTORS,
            )
            with suppress(NotFound):  # the run has ended
                await (await self.engine_of(known)).send_verb(known.run, verb)

    async def _keeps(self, incident: str, n: int) -> bool:
        """Whether the playbook ended by holding something for a person: by its last step, or because an exhausted retry policy says so."""
        steps = (await self.playbook(incident, n)).steps
        if steps and isinstance(steps[-1].do, Hold):
            return True
        climbed = [place for place, step in enumerate(steps) if step.action is ActionKind.RETRY]
        records = await self.incidents.get_steps([step_record_id(incident, n, step, StepMark.OVER) for step in climbed])
        return any(end_of(record).detail.startswith(f"{AfterLastLevel.HOLD}:") for record in records.values())

    # -- what a step does --------------------------------------------------------------------------------------

    async def perform(self, ask: StepRequest) -> ActionOutcome:
        """Carry out a step; the caller has recorded that it begins."""
        do, incident = ask.do, ask.incident
        if incident.engine != OWN_ENGINE and self.abroad is not None and not isinstance(do, Notify):
            return await self.abroad(ask)
        if do.action in self.others and not self.jobs.can(do):
            return await self.others[do.action](ask)
        match do:
            case Steer(target=ActionTarget.ALL_RUNS):
                return await self._all_runs(ask, do.action)
            case Steer(target=target) | Hold(target=target):
                return await self._one(ask, target)
            case Rollback():
                if not incident.run:
                    return await self.jobs.recover(
                        incident, Steer(ActionKind.FORCE_FAIL, ActionTarget.JOB), step=ask.id
                    )
                return await self.verb(ask, VerbKind.FORCE_FAIL)
            case Select(worklet):
                changes = {"flow": worklet.flow, "params": await self.given(ask, worklet)}
                return await self.verb(ask, VerbKind.REPLACE, instance=incident.instance, changes=changes)
            case Notify():
                return await self._notify(ask, do)
            case _ if self.jobs.can(do) and incident.job:
                return await self._recover(ask, do)
            case _ if self.jobs.can(do):
                return ActionOutcome(done=False, detail="the exception does not concern a job")
            case _:
                how = getattr(do, "how", "")
                return ActionOutcome(done=False, detail=f"this installation cannot {do.action} {how}".rstrip())

    async def _recover(self, ask: StepRequest, do: Action) -> ActionOutcome:
        notes = awaited_notes(ask.later) if do.action is ActionKind.RESUBMIT else {}
        outcome = await self.jobs.recover(ask.incident, do, step=ask.id, release_of=ask.release, notes=notes)
        if (
            do.action is ActionKind.RETRY
            and outcome.detail.startswith(f"{AfterLastLevel.ROLLBACK}:")
            and ask.incident.run
        ):
            job = (await self.store.get([ask.incident.job])).get(ask.incident.job)
            if job is None or can_roll_back(job.document):
                await self.verb(ask, VerbKind.FORCE_FAIL)
        return outcome

    async def _one(self, ask: StepRequest, target: ActionTarget) -> ActionOutcome:
        """Act on a job, a task, a run, or a run and its ancestors."""
        incident, action = ask.incident, ask.do.action
        if target is ActionTarget.SUBJECT:
            target = ActionTarget.JOB if incident.job else ActionTarget.TASK
        if target is ActionTarget.JOB or (target is ActionTarget.TASK and not incident.run):
            if not incident.job:
                return ActionOutcome(done=False, detail="the exception does not concern a job")
            return await self.jobs.recover(incident, ask.do, step=ask.id, release_of=ask.release)
        if not incident.run:
            return ActionOutcome(done=False, detail="no run submitted the job")
        if target is ActionTarget.TASK and not incident.instance:
            return ActionOutcome(done=False, detail="the exception does not concern a task")
        instance = incident.instance if target is ActionTarget.TASK else ""
        done = await self.verb(ask, VERBS[action], instance=instance, ancestors=target is ActionTarget.ANCESTORS)
        if done.done and action is ActionKind.CONTINUE and incident.kind in RAISED and target is not ActionTarget.TASK:
            # A run that was suspended as a safeguard, for want of an answer, continues by the playbook that answers it.
            await self._let_go(incident, "")
        return done

    async def verb(self, ask: StepRequest, kind: VerbKind, *, instance: str = "", **more: Any) -> ActionOutcome:
        """Steer the run by a verb whose id is the step's, so that it is executed once."""
        incident = ask.incident
        engine = await self.engine_of(incident)
        holder = ask.release or ask.id
        # A verb for one round of a task does not apply to the next; a suspended task is continued in any round.
        round_ = incident.round or None if instance and kind is not VerbKind.CONTINUE else None
        verb = Verb(
            ask.at,
            ask.id,
            kind,
            instance=instance,
            by="playbook",
            holder=holder,
            reason=f"incident {incident.id}",
            round=round_,
            **more,
        )
        try:
            answer = await engine.send_verb(incident.run, verb)
        except NotFound:
            return ActionOutcome(done=False, detail="the run has ended")
        return ActionOutcome(answer.accepted, answer.detail)

    async def engine_of(self, incident: Incident) -> ExceptionEngine:
        """The engine of the incident's run, which must belong to its tenant. `NotFound` for all others, so that no tenant learns of another's runs."""
        engine: ExceptionEngine | None = self.own_engine() if incident.engine == OWN_ENGINE else self.elsewhere
        if engine is None:
            raise Permanent(f"there is no connection to the engine {incident.engine}")
        if (await engine.describe(incident.run)).tenant != incident.tenant:
            raise NotFound(f"there is no run {incident.run}")
        return engine

    async def _all_runs(self, ask: StepRequest, action: ActionKind) -> ActionOutcome:
        incident = ask.incident
        if not incident.run:
            return ActionOutcome(done=False, detail="no run submitted the job")
        flow = incident.flow or (await (await self.engine_of(incident)).describe(incident.run)).version
        if action is ActionKind.SUSPEND:
            await self.suspensions.suspend(incident.tenant, flow, ask.id)
        elif action is ActionKind.CONTINUE:
            await self.suspensions.let_go(incident.tenant, flow, ask.release)
        else:
            verb = Verb(ask.at, ask.id, VERBS[action], by="playbook", reason=f"incident {incident.id}")
            await self.suspensions.order(incident.tenant, flow, verb)
        return ActionOutcome(done=True)

    async def _notify(self, ask: StepRequest, do: Notify) -> ActionOutcome:
        incident = ask.incident
        to = list(do.to) or [incident.owner]
        body = {"alert": "playbook", "words": do.text, "to": to, "incident": incident.id, "run": incident.run}
        record = Record(f"alert:{ask.id}", incident.tenant, "alert", incident.job or incident.run, ask.at, body)
        await self.store.add_records([record])
        return ActionOutcome(done=True, detail=f"notified {', '.join(to)}")

    async def given(self, ask: StepRequest, worklet: Worklet) -> dict[str, object]:
        """The parameters of a worklet, with what they refer to filled in."""
        data = await self._data(ask) if worklet.give else {}

        def lookup(path: Path) -> object:
            return inside(data, path)

        return {name: filled(value, lookup) for name, value in worklet.give.items()}

    async def _data(self, ask: StepRequest) -> Mapping[str, object]:
        """The data that a worklet may refer to: the present run, and the incident as recorded."""
        incident = ask.incident
        about = {"id": incident.id, "kind": incident.kind.value, "cause": incident.cause, "task": incident.instance}
        about |= {"job": incident.job, "owner": incident.owner}
        data: dict[str, object] = {"incident": {**incident.context, **about}, "run": incident.run}
        if incident.run:
            state = await (await self.engine_of(incident)).state(incident.run)
            data["params"] = state["params"]
            data["tasks"] = {
                instance["id"]: {
                    "state": instance.get("state", "waiting"),
                    "result": instance.get("result"),
                    "exit_code": instance.get("exit_code"),
                    "outputs": instance.get("outputs", {}),
                }
                for instance in state["instances"]
            }
        return data

    def own_engine(self) -> FlowEngine:
        if self.engine is None:
            raise Permanent("this domain runs no flows")
        return self.engine
