"""Carries out playbooks of a single step that is one write on a job, many of them together.

The same law as of one by itself (`build_playbook_runner`): a document before the step, one after it, and the line in the job's story in between; only that many are written at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.exceptions.incidents.incident import CLOSED, Incident, StepMark, StepRecord, step_record_id
from forestay.domain.exceptions.incidents.retry_policy import AfterLastLevel
from forestay.domain.playbooks.action import ActionKind, Hold
from forestay.domain.playbooks.playbook import Playbook
from forestay.domain.playbooks.playbook_run import PlaybookRunState, StepEnd, StepState
from forestay.ports.errors import Conflict, NotFound, Permanent
from forestay.ports.jobs.job_store import Written
from forestay.services.exceptions.act.job_actions import ActionOutcome, JobAction
from forestay.services.exceptions.act.playbook_runner import STANDS, PlaybookRunner
from forestay.services.exceptions.record.step_log import StepRequest, end_of


class SingleStep(NamedTuple):
    """A playbook of one step, on one incident."""

    incident: Incident
    n: int
    playbook: Playbook

    def record(self, mark: StepMark, at: int, **detail: object) -> StepRecord:
        action = self.playbook.steps[0].action.value
        return StepRecord(self.incident.id, self.n, 0, mark, self.incident.tenant, at, action, detail)

    def record_id(self, mark: StepMark) -> str:
        return step_record_id(self.incident.id, self.n, 0, mark)


@dataclass(slots=True)
class SingleStepRunner:
    """The service."""

    playbooks: PlaybookRunner

    async def run(self, asked: Sequence[SingleStep]) -> Sequence[StepEnd]:
        """Carry them out, once each; how each ended, in order, and where its incident stands is written then."""
        if not asked:
            return ()
        incidents = self.playbooks.incidents
        known = await incidents.get_steps([step.record_id(StepMark.OVER) for step in asked])
        ends = {step.incident.id: end_of(over) for step in asked if (over := known.get(step.record_id(StepMark.OVER)))}
        open_ = [step for step in asked if step.incident.id not in ends]
        if open_:
            outcomes = await self._perform(open_, await self._begin(open_))
            ends |= await self._record(open_, outcomes)
        await self._finish(asked, [ends[step.incident.id] for step in asked])
        return [ends[step.incident.id] for step in asked]

    async def _begin(self, asked: Sequence[SingleStep]) -> Sequence[StepRequest]:
        """Say that the steps begin; as whoever was the first has said."""
        now, incidents = self.playbooks.clock.now(), self.playbooks.incidents
        records = [step.record(StepMark.BEGUN, now) for step in asked]
        first = await incidents.add_steps(records)
        before = await incidents.get_steps([record.id for record, new in zip(records, first, strict=True) if not new])
        return [
            StepRequest(step.incident, step.n, 0, step.playbook.steps[0].do, before.get(record.id, record).at)
            for step, record in zip(asked, records, strict=True)
        ]

    async def _perform(self, asked: Sequence[SingleStep], asks: Sequence[StepRequest]) -> Sequence[ActionOutcome]:
        playbooks = self.playbooks
        together = [ask for ask in asks if ask.incident.job and playbooks.jobs.can(ask.do)]
        recovered = await playbooks.jobs.recover_all([JobAction(ask.incident, ask.do, ask.id) for ask in together])
        outcomes = {ask.id: outcome for ask, outcome in zip(together, recovered, strict=True)}
        for ask in asks:
            # The end of a retry policy may have to be told to the run; whoever finds the job's line there does not write it again.
            alone = ask.id not in outcomes or (
                ask.do.action is ActionKind.RETRY and outcomes[ask.id].detail.startswith(AfterLastLevel.ROLLBACK)
            )
            if alone:
                try:
                    outcomes[ask.id] = await playbooks.perform(ask)
                except (NotFound, Permanent, Conflict) as error:
                    outcomes[ask.id] = ActionOutcome(done=False, detail=str(error))
        return [outcomes[ask.id] for ask in asks]

    async def _record(self, asked: Sequence[SingleStep], outcomes: Sequence[ActionOutcome]) -> dict[str, StepEnd]:
        now, incidents = self.playbooks.clock.now(), self.playbooks.incidents
        records = [
            step.record(
                StepMark.OVER,
                now,
                state=(StepState.DONE if outcome.done else StepState.REFUSED).value,
                detail=outcome.detail[:1000],
            )
            for step, outcome in zip(asked, outcomes, strict=True)
        ]
        first = await incidents.add_steps(records)
        before = await incidents.get_steps([record.id for record, new in zip(records, first, strict=True) if not new])
        return {record.incident: end_of(before.get(record.id, record)) for record in records}

    async def _finish(self, asked: Sequence[SingleStep], ends: Sequence[StepEnd]) -> None:
        incidents, now = self.playbooks.incidents, self.playbooks.clock.now()
        statuses = await incidents.get_statuses([step.incident.id for step in asked])
        moved = []
        states = {step.incident.id: _state(step, end) for step, end in zip(asked, ends, strict=True)}
        for step, end in zip(asked, ends, strict=True):
            known, state = statuses.get(step.incident.id), states[step.incident.id]
            if known is None or known.status.n > step.n or known.status.state in CLOSED:
                continue
            if state is PlaybookRunState.COMPLETE:
                await self.playbooks.lift(step.incident)
            note = end.detail or ("held for a person" if state is PlaybookRunState.HELD else "")
            moved.append((known.status.moved(STANDS[state], now=now, n=step.n, note=note), known.version))
        results = await incidents.put_statuses(moved) if moved else ()
        details = {step.incident.id: end.detail for step, end in zip(asked, ends, strict=True)}
        for (status, _), result in zip(moved, results, strict=True):
            if not isinstance(result, Written):
                await self.playbooks.finish(status.id, status.n, states[status.id], reason=details[status.id])


def _state(step: SingleStep, end: StepEnd) -> PlaybookRunState:
    if end.state is not StepState.DONE:
        return PlaybookRunState.FAILED
    do = step.playbook.steps[0].do
    kept = isinstance(do, Hold) or (do.action is ActionKind.RETRY and end.detail.startswith(f"{AfterLastLevel.HOLD}:"))
    return PlaybookRunState.HELD if kept else PlaybookRunState.COMPLETE
