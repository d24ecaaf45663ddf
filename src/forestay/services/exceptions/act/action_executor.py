"""Carries out decisions within the safeguards; what the safeguards refuse is postponed or held for a person, never lost.

Each step of a playbook takes effect once, whoever repeats it. Playbooks that need more than one write and cannot run here run in a workflow of the flow engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from forestay.domain.exceptions.incidents.default_policy import NEVER, DefaultAction
from forestay.domain.exceptions.incidents.exception_policy import ExceptionAction
from forestay.domain.exceptions.incidents.exception_type import CONSTRAINTS
from forestay.domain.exceptions.incidents.incident import (
    CLOSED,
    HELD_FOR_A_PERSON,
    OWN_ENGINE,
    Incident,
    IncidentState,
    IncidentStatus,
    StepMark,
    StepRecord,
    step_record_id,
)
from forestay.domain.exceptions.incidents.retry_policy import AfterLastLevel
from forestay.domain.exceptions.safeguards.safeguards import ActionRefused
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.playbooks.action import ActionKind, Hold, worklets_of
from forestay.domain.playbooks.playbook import Playbook, WhenRefused, actions_of, is_of_job, is_one_write, refusal_of
from forestay.domain.playbooks.playbook_run import PlaybookRunState, StepEnd, StepState
from forestay.ports.clock import Clock
from forestay.ports.errors import Conflict, NotFound, Permanent
from forestay.ports.exceptions.playbook_engine import PlaybookEngine
from forestay.ports.jobs.job_store import Written
from forestay.services.exceptions.act.failed_job_writes import default_answer_write, parked
from forestay.services.exceptions.act.job_actions import ActionOutcome, JobAction
from forestay.services.exceptions.act.playbook_runner import STANDS, PlaybookRunner
from forestay.services.exceptions.engines.engine_commands import Unanswered
from forestay.services.exceptions.exception_event import PendingException
from forestay.services.exceptions.record.decision_log import DecisionLog, StatusChange, StepRequest, end_of
from forestay.services.exceptions.safeguards.action_limits import StormTracker
from forestay.services.exceptions.safeguards.safeguards import Permits
from forestay.services.shared.checked_writer import WriteApplied, Writer

NOBODY = "this domain does not support it"
AT_ONCE = 20
"""Playbooks of several steps that are started at the same time."""
_SETTLED = {
    DefaultAction.RETRY.value: IncidentState.COMPLETE,
    ExceptionAction.HOLD.value: IncidentState.HELD,
    ExceptionAction.FAIL.value: IncidentState.FAILED,
    ExceptionAction.IGNORE.value: IncidentState.IGNORED,
}
"""The state of an incident after a decision without a playbook was carried out."""


class ActionStatus(StrEnum):
    """The result of a request to act."""

    DONE = "done"
    REFUSED = "refused"
    """It was tried and could not be done: a person decides."""
    BEGUN = "begun"
    """The engine carries it out, step by step."""
    PUT_OFF = "put-off"
    """The safeguards did not permit it."""


class ActionTaken(NamedTuple):
    """What was done by a decision."""

    did: ActionStatus
    words: str = ""
    again: int | None = None
    """When to ask the safeguards again; None: only a person can help."""


Taken = dict[str, ActionTaken]
"""By the id of the incident."""


@dataclass(frozen=True, slots=True)
class ActionExecutor:
    """The service."""

    log: DecisionLog
    writer: Writer
    playbooks: PlaybookRunner
    engine: PlaybookEngine | None
    """Runs playbooks of several steps; None: this domain has no flow engine."""
    storms: StormTracker
    clock: Clock

    async def carry_out(self, pendings: Sequence[PendingException], permits: Permits) -> Mapping[str, ActionTaken]:
        """Carry out the decisions that are permitted; returns what was done, by the id of the incident. Jobs that cannot be written now are left out."""
        refused: list[tuple[PendingException, ActionRefused | None]] = []
        settled, playbooks = list[PendingException](), list[PendingException]()
        for pending in pendings:
            if isinstance(permit := permits.get(pending.id), ActionRefused):
                refused.append((pending, permit))
            elif pending.playbook is None:
                settled.append(pending)
            else:
                playbooks.append(pending)
        return await self._put_off(refused) | await self._settle(settled) | await self._run(playbooks)

    async def hold(self, status: IncidentStatus, job: JobDocument | None, why: str) -> None:
        """Hold an incident that cannot be handled without a person; a failed job is no longer due."""
        await self.log.move({status.id: StatusChange(IncidentState.HELD, max(1, status.n), why)})
        if job is not None:
            await self.writer.write([parked(job, NEVER, self.clock.now())])

    async def make_due(self, incidents: Sequence[str], jobs: Sequence[JobDocument]) -> None:
        """Make postponed incidents due now; `jobs`: those of the failures among them."""
        now = self.clock.now()
        await self.log.move(dict.fromkeys(incidents, StatusChange(IncidentState.WAITING, due=now)))
        if jobs:
            await self.writer.write([parked(job, now, now) for job in jobs])

    # -- not now -----------------------------------------------------------------------------------------------

    async def _put_off(self, refused: Sequence[tuple[PendingException, ActionRefused | None]]) -> Taken:
        """Postpone these: they continue automatically later, or after a person decides. The status is written first: people must see what is held."""
        if not refused:
            return {}
        taken: Taken = {}
        changes: dict[str, StatusChange] = {}
        for pending, refusal in refused:
            words, again, group = (
                (NOBODY, None, "") if refusal is None else (refusal.words, refusal.again, refusal.group)
            )
            state = IncidentState.HELD if again is None else IncidentState.WAITING
            changes[pending.id] = StatusChange(state, pending.decision.n, words, again, group)
            taken[pending.id] = ActionTaken(ActionStatus.PUT_OFF, words, again)
        await self.log.move(changes)
        now = self.clock.now()
        waits = [
            parked(pending.job, NEVER if refusal is None or refusal.again is None else refusal.again, now)
            for pending, refusal in refused
            if pending.job is not None
        ]
        if waits:
            await self.writer.write(waits)
        await self._wake_late(
            [
                (pending, refusal.group)
                for pending, refusal in refused
                if refusal is not None and refusal.again is None and refusal.group
            ]
        )
        return taken

    async def _wake_late(self, refused: Sequence[tuple[PendingException, str]]) -> None:
        """Make due what was held too late: a person may have released the group after the safeguards' reply and before these were held."""
        if not refused:
            return
        tenants = dict.fromkeys(pending.incident.tenant for pending, _ in refused)
        held = {group.id for tenant in tenants for group in await self.storms.groups(tenant) if group.held}
        late = [pending for pending, group in refused if group not in held]
        await self.make_due([pending.id for pending in late], _jobs_of(late))

    # -- without a playbook ------------------------------------------------------------------------------------

    async def _settle(self, pendings: Sequence[PendingException]) -> Taken:
        """Carry out the default policy: for a failure one write on the job, for all others only the incident's status."""
        if not pendings:
            return {}
        now, lost = self.clock.now(), set[str]()
        failures = [(pending, pending.job) for pending in pendings if pending.job is not None]
        if failures:
            answers = await self.writer.write([default_answer_write(pending, job, now) for pending, job in failures])
            lost = {
                pending.id
                for (pending, _), answer in zip(failures, answers, strict=True)
                if not isinstance(answer, WriteApplied | TransitionRefused)
            }
        done = [pending for pending in pendings if pending.id not in lost]
        words = {pending.id: str(pending.decision.detail.get("words", "")) for pending in done}
        # Only for people: a lost status costs no more than a line in a list.
        await self.log.move(
            {
                pending.id: StatusChange(_SETTLED[pending.decision.verdict], pending.decision.n, words[pending.id])
                for pending in done
            }
        )
        return {name: ActionTaken(ActionStatus.DONE, said) for name, said in words.items()}

    # -- playbooks ---------------------------------------------------------------------------------------------

    async def _run(self, pendings: Sequence[PendingException]) -> Taken:
        at_once, in_order, abroad = list[PendingException](), list[PendingException](), list[PendingException]()
        begun, unsupported = list[PendingException](), list[PendingException]()
        for pending in pendings:
            incident, playbook = pending.incident, pending.playbook
            assert playbook is not None  # noqa: S101 - the caller looked
            own = incident.engine == OWN_ENGINE
            if own and is_one_write(playbook, of_run=bool(incident.run)):
                at_once.append(pending)
            elif self.engine is not None:
                # A command takes as long as the other engine takes: a workflow waits for it.
                begun.append(pending)
            elif own and incident.job and is_of_job(playbook):
                in_order.append(pending)
            elif not own and len(playbook.steps) == 1 and not worklets_of(playbook.steps[0].do):
                abroad.append(pending)
            else:
                unsupported.append(pending)
        taken = await self._put_off([(pending, None) for pending in unsupported])
        # The audit entry comes before the action.
        await self.log.write_audit([pending for pending in pendings if pending.id not in taken])
        taken |= await self._at_once(at_once)
        for pending in in_order:
            taken[pending.id] = await self._in_order(pending)
        for pending in abroad:
            taken[pending.id] = await self._abroad(pending)
        return taken | await self._begin(begun)

    async def _at_once(self, pendings: Sequence[PendingException]) -> Taken:
        steps = [
            SingleStep(pending.incident, pending.decision.n, pending.playbook)
            for pending in pendings
            if pending.playbook is not None
        ]
        ends = await SingleStepRunner(self.playbooks).run(steps)
        await self._keep_from_retry(
            [pending for pending, end in zip(pendings, ends, strict=True) if end.state is not StepState.DONE]
        )
        return {
            pending.id: ActionTaken(
                ActionStatus.DONE if end.state is StepState.DONE else ActionStatus.REFUSED, end.detail
            )
            for pending, end in zip(pendings, ends, strict=True)
        }

    async def _in_order(self, pending: PendingException) -> ActionTaken:
        """Carry out steps that concern only the job, one after the other, for a domain without a flow engine. A repeat finds what is done."""
        n, state, words = pending.decision.n, PlaybookRunState.COMPLETE, ""
        for place, step in enumerate(pending.playbook.steps if pending.playbook is not None else ()):
            end = await self.playbooks.do_step(pending.id, n, place)
            words = end.detail
            if end.state is not StepState.DONE and refusal_of(step) is WhenRefused.STOP:
                state = PlaybookRunState.FAILED
                break
        await self.playbooks.finish(pending.id, n, state, reason=words)
        if state is PlaybookRunState.COMPLETE:
            return ActionTaken(ActionStatus.DONE, words)
        await self._keep_from_retry([pending])
        return ActionTaken(ActionStatus.REFUSED, words)

    async def _abroad(self, pending: PendingException) -> ActionTaken:
        """Have another engine do it; if it does not reply at once, `EngineReplies` completes it on the reply."""
        try:
            end = await self.playbooks.do_only_step(pending.id, pending.decision.n)
        except Unanswered:
            words = _words(pending)
            await self.log.move({pending.id: StatusChange(IncidentState.ACTING, pending.decision.n, words)})
            return ActionTaken(ActionStatus.BEGUN, words)
        return ActionTaken(ActionStatus.DONE if end.state is StepState.DONE else ActionStatus.REFUSED, end.detail)

    async def _begin(self, pendings: Sequence[PendingException]) -> Taken:
        for start in range(0, len(pendings), AT_ONCE):
            await asyncio.gather(*(self._begin_one(pending) for pending in pendings[start : start + AT_ONCE]))
        await self._keep_from_retry(pendings)
        return {pending.id: ActionTaken(ActionStatus.BEGUN, _words(pending)) for pending in pendings}

    async def _begin_one(self, pending: PendingException) -> None:
        assert self.engine is not None  # noqa: S101 - the caller looked
        incident, n = pending.incident, pending.decision.n
        # Noted first: a playbook that ends quickly writes the incident's next status itself.
        await self.log.move({incident.id: StatusChange(IncidentState.ACTING, n, _words(pending))})
        await self.engine.start_playbook(incident.id, n, tenant=incident.tenant, owner=incident.owner)

    async def _keep_from_retry(self, pendings: Sequence[PendingException]) -> None:
        """Make the failures among them not due: a workflow or a person continues them."""
        if jobs := _jobs_of(pendings):
            now = self.clock.now()
            await self.writer.write([parked(job, NEVER, now) for job in jobs])


def _jobs_of(pendings: Sequence[PendingException]) -> list[JobDocument]:
    return [pending.job for pending in pendings if pending.job is not None]


def _words(pending: PendingException) -> str:
    return ", ".join(actions_of(pending.playbook.steps if pending.playbook is not None else ()))


class SingleStep(NamedTuple):
    """A playbook of one step, on one incident."""

    incident: Incident
    n: int
    playbook: Playbook

    def record(self, mark: StepMark, at: int, **detail: object) -> StepRecord:
        action = self.playbook.steps[0].do.action.value
        return StepRecord(self.incident.id, self.n, 0, mark, self.incident.tenant, at, action, detail)


@dataclass(slots=True)
class SingleStepRunner:
    """The service."""

    playbooks: PlaybookRunner

    async def run(self, asked: Sequence[SingleStep]) -> Sequence[StepEnd]:
        """Carry them out, once each, and write the status of their incidents; returns the results in order."""
        if not asked:
            return ()
        incidents = self.playbooks.incidents
        names = [step_record_id(step.incident.id, step.n, 0, StepMark.OVER) for step in asked]
        known = await incidents.get_steps(names)
        ends = {known[name].incident: end_of(known[name]) for name in names if name in known}
        open_ = [step for step in asked if step.incident.id not in ends]
        if open_:
            outcomes = await self._perform(open_, await self._begin(open_))
            ends |= await self._record(open_, outcomes)
        await self._finish(asked, [ends[step.incident.id] for step in asked])
        return [ends[step.incident.id] for step in asked]

    async def _begin(self, asked: Sequence[SingleStep]) -> Sequence[StepRequest]:
        """Record that the steps begin; returns the first records if they existed."""
        now = self.playbooks.clock.now()
        begun = await self._add([step.record(StepMark.BEGUN, now) for step in asked])
        return [
            StepRequest(step.incident, step.n, 0, step.playbook.steps[0].do, record.at)
            for step, record in zip(asked, begun, strict=True)
        ]

    async def _add(self, records: Sequence[StepRecord]) -> Sequence[StepRecord]:
        """Add records; returns the first ones where they existed."""
        incidents = self.playbooks.incidents
        first = await incidents.add_steps(records)
        if all(first):
            return records
        before = await incidents.get_steps([record.id for record, new in zip(records, first, strict=True) if not new])
        return [before.get(record.id, record) for record in records]

    async def _perform(self, asked: Sequence[SingleStep], asks: Sequence[StepRequest]) -> Sequence[ActionOutcome]:
        playbooks = self.playbooks
        together = [ask for ask in asks if ask.incident.job and playbooks.jobs.can(ask.do)]
        recovered = await playbooks.jobs.recover_all([JobAction(ask.incident, ask.do, ask.id) for ask in together])
        outcomes = {ask.id: outcome for ask, outcome in zip(together, recovered, strict=True)}
        for ask in asks:
            # The end of a retry policy may have to be reported to the run; where the job's line exists already it is not written again.
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
        now = self.playbooks.clock.now()
        over = await self._add(
            [
                step.record(
                    StepMark.OVER,
                    now,
                    state=(StepState.DONE if outcome.done else StepState.REFUSED).value,
                    detail=outcome.detail[:1000],
                )
                for step, outcome in zip(asked, outcomes, strict=True)
            ]
        )
        return {record.incident: end_of(record) for record in over}

    async def _finish(self, asked: Sequence[SingleStep], ends: Sequence[StepEnd]) -> None:
        incidents, now = self.playbooks.incidents, self.playbooks.clock.now()
        statuses = await incidents.get_statuses([step.incident.id for step in asked])
        moved = []
        states = {step.incident.id: _state(step, end) for step, end in zip(asked, ends, strict=True)}
        for step, end in zip(asked, ends, strict=True):
            known, state = statuses.get(step.incident.id), states[step.incident.id]
            if known is None or known.status.n > step.n or known.status.state in CLOSED:
                continue
            if state is PlaybookRunState.COMPLETE and step.incident.kind in CONSTRAINTS:
                await self.playbooks.lift(step.incident)
            note = end.detail or (HELD_FOR_A_PERSON if state is PlaybookRunState.HELD else "")
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
