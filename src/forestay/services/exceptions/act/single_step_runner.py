"""Carries out exlets of a single step that is one write on a job, many of them together.

The same law as of one by itself (`build_playbook_runner`): a document before the step, one after it, and the line in the job's story in between; only that many are written at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.exceptions.incidents.incident import CLOSED, Incident, StepMark, StepRecord, step_record_id
from forestay.domain.exceptions.incidents.ladder import AfterLastLevel
from forestay.domain.exlets.exlet import Exlet
from forestay.domain.exlets.exlet_run import PlaybookRunState, StepEnd, StepState
from forestay.domain.exlets.primitive import Action, Hold
from forestay.ports.errors import Conflict, NotFound, Permanent
from forestay.ports.jobs.job_store import Written
from forestay.services.exceptions.act.job_actions import ActionOutcome, JobAction
from forestay.services.exceptions.act.playbook_runner import STANDS, PlaybookRunner
from forestay.services.exceptions.record.step_log import StepRequest, end_of


class SingleStep(NamedTuple):
    """An exlet of one step, on one incident."""

    incident: Incident
    n: int
    exlet: Exlet

    def record(self, mark: StepMark, at: int, **detail: object) -> StepRecord:
        action = self.exlet.steps[0].action.value
        return StepRecord(self.incident.id, self.n, 0, mark, self.incident.tenant, at, action, detail)

    def record_id(self, mark: StepMark) -> str:
        return step_record_id(self.incident.id, self.n, 0, mark)


@dataclass(slots=True)
class SingleStepRunner:
    """The service."""

    exlets: PlaybookRunner

    async def run(self, asked: Sequence[SingleStep]) -> Sequence[StepEnd]:
        """Carry them out, once each; how each ended, in order, and where its incident stands is written then."""
        if not asked:
            return ()
        incidents = self.exlets.incidents
        known = await incidents.get_steps([one.record_id(StepMark.OVER) for one in asked])
        ends = {one.incident.id: end_of(over) for one in asked if (over := known.get(one.record_id(StepMark.OVER)))}
        open_ = [one for one in asked if one.incident.id not in ends]
        if open_:
            outcomes = await self._perform(open_, await self._begin(open_))
            ends |= await self._record(open_, outcomes)
        await self._finish(asked, [ends[one.incident.id] for one in asked])
        return [ends[one.incident.id] for one in asked]

    async def _begin(self, asked: Sequence[SingleStep]) -> Sequence[StepRequest]:
        """Say that the steps begin; as whoever was the first has said."""
        now, incidents = self.exlets.clock.now(), self.exlets.incidents
        records = [one.record(StepMark.BEGUN, now) for one in asked]
        first = await incidents.add_steps(records)
        before = await incidents.get_steps([one.id for one, new in zip(records, first, strict=True) if not new])
        return [
            StepRequest(one.incident, one.n, 0, one.exlet.steps[0].do, before.get(record.id, record).at)
            for one, record in zip(asked, records, strict=True)
        ]

    async def _perform(self, asked: Sequence[SingleStep], asks: Sequence[StepRequest]) -> Sequence[ActionOutcome]:
        exlets = self.exlets
        together = [ask for ask in asks if exlets.jobs.can(ask.do)]
        mended = await exlets.jobs.mend_all([JobAction(ask.incident, ask.do, ask.id) for ask in together])
        found = {ask.id: outcome for ask, outcome in zip(together, mended, strict=True)}
        for ask in asks:
            # The end of a ladder may have to be told to the case; whoever finds the job's line there does not write it again.
            alone = ask.id not in found or (
                ask.do.action is Action.LADDER and found[ask.id].detail.startswith(AfterLastLevel.ROLLBACK)
            )
            if alone:
                try:
                    found[ask.id] = await exlets.perform(ask)
                except (NotFound, Permanent, Conflict) as error:
                    found[ask.id] = ActionOutcome(done=False, detail=str(error))
        return [found[ask.id] for ask in asks]

    async def _record(self, asked: Sequence[SingleStep], outcomes: Sequence[ActionOutcome]) -> dict[str, StepEnd]:
        now, incidents = self.exlets.clock.now(), self.exlets.incidents
        records = [
            one.record(
                StepMark.OVER,
                now,
                state=(StepState.DONE if outcome.done else StepState.REFUSED).value,
                detail=outcome.detail[:1000],
            )
            for one, outcome in zip(asked, outcomes, strict=True)
        ]
        first = await incidents.add_steps(records)
        before = await incidents.get_steps([one.id for one, new in zip(records, first, strict=True) if not new])
        return {record.incident: end_of(before.get(record.id, record)) for record in records}

    async def _finish(self, asked: Sequence[SingleStep], ends: Sequence[StepEnd]) -> None:
        incidents, now = self.exlets.incidents, self.exlets.clock.now()
        standings = await incidents.get_standings([one.incident.id for one in asked])
        moved = []
        states = {one.incident.id: _state(one, end) for one, end in zip(asked, ends, strict=True)}
        for one, end in zip(asked, ends, strict=True):
            known, state = standings.get(one.incident.id), states[one.incident.id]
            if known is None or known.standing.n > one.n or known.standing.state in CLOSED:
                continue
            note = end.detail or ("held for a person" if state is PlaybookRunState.HELD else "")
            moved.append((known.standing.moved(STANDS[state], now=now, n=one.n, note=note), known.version))
        results = await incidents.put_standings(moved) if moved else ()
        details = {one.incident.id: end.detail for one, end in zip(asked, ends, strict=True)}
        for (standing, _), result in zip(moved, results, strict=True):
            if not isinstance(result, Written):
                await self.exlets.finish(standing.id, standing.n, states[standing.id], reason=details[standing.id])


def _state(one: SingleStep, end: StepEnd) -> PlaybookRunState:
    if end.state is not StepState.DONE:
        return PlaybookRunState.FAILED
    do = one.exlet.steps[0].do
    kept = isinstance(do, Hold) or (do.action is Action.LADDER and end.detail.startswith(f"{AfterLastLevel.HOLD}:"))
    return PlaybookRunState.HELD if kept else PlaybookRunState.COMPLETE
