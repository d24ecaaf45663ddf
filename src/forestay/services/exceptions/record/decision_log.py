"""Records decisions and steps for incidents, create-only, with the audit log and the incidents' status.

Several processes may handle the same incident. The first records the decision; the others act by the recorded one.

Before a step of a playbook acts, a document records its start under the step's own name (incident, number of the decision, step); after it, another one
records its result. A process that finds a step finished does not act again; one that finds it started repeats it with the same id and time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.exceptions.incidents.incident import (
    CLOSED,
    Decision,
    Incident,
    IncidentState,
    IncidentStatus,
    StepMark,
    StepRecord,
    step_id,
    step_record_id,
)
from forestay.domain.exceptions.safeguards.audit import AuditNote
from forestay.domain.playbooks.action import Action, ActionKind
from forestay.domain.playbooks.playbook import Playbook, actions_of, playbook_from_plain
from forestay.domain.playbooks.playbook_run import StepEnd, StepState
from forestay.ports.clock import Clock
from forestay.ports.errors import Conflict, NotFound, Permanent, Transient, Unreadable
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.services.exceptions.act.job_actions import ActionOutcome
from forestay.services.exceptions.exception_event import PendingException
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.shared.incident_settlement import NOTE_KEPT


class StatusChange(NamedTuple):
    """The new state of an incident; None leaves a field unchanged."""

    state: IncidentState
    n: int | None = None
    note: str | None = None
    due: int | None = None
    group: str = ""

    def applied(self, known: IncidentStatus, now: int) -> IncidentStatus:
        """The new status; the same object where nothing changes."""
        if known.state in CLOSED:
            return known
        n, note = known.n if self.n is None else self.n, known.note if self.note is None else self.note[:NOTE_KEPT]
        if self.state is IncidentState.ACTING and known.state is IncidentState.HELD and known.n >= n:
            return known  # its playbook has ended already, and the incident was held for a person
        return known.moved(self.state, now=now, due=self.due, n=n, note=note, group=self.group or known.group)


@dataclass(frozen=True, slots=True)
class DecisionLog:
    """The service."""

    incidents: IncidentStore
    audit: AuditLog
    clock: Clock

    async def agree(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        """Record the decisions; returns these, or the earlier ones where they exist. `Unreadable` if one of those cannot be read."""
        added = await self.incidents.add_decisions(decisions)
        if all(added):
            return decisions
        known = await self.incidents.get_decisions(
            [(decision.incident, decision.n) for decision, new in zip(decisions, added, strict=True) if not new]
        )
        agreed: list[Decision] = []
        for made, new in zip(decisions, added, strict=True):
            decision = made if new else known.get((made.incident, made.n))
            if decision is None:
                raise Transient("a decision could not be read back")
            agreed.append(decision)
        return agreed

    async def agree_readable(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        """As `agree`, without those whose recorded decision cannot be read."""
        try:
            return await self.agree(decisions)
        except Unreadable as error:
            return await self.agree([decision for decision in decisions if decision.id not in error.names])

    async def newest(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        """The latest decisions: a postponed one may have been made after the first. Incidents whose decision cannot be read are left out."""
        try:
            known = await self.incidents.get_statuses([decision.incident for decision in decisions])
            newer = {name: stored.status.n for name, stored in known.items()}
            later = [
                (decision.incident, newer[decision.incident])
                for decision in decisions
                if newer.get(decision.incident, 0) > decision.n
            ]
            made = await self.incidents.get_decisions(later) if later else {}
        except Unreadable as error:
            # The names are those of statuses, or of decisions: the incident's id and a number.
            spoilt = {*error.names, *(name.rpartition(":")[0] for name in error.names)}
            rest = [decision for decision in decisions if decision.incident not in spoilt]
            return await self.newest(rest) if len(rest) < len(decisions) else ()
        return [made.get((decision.incident, newer.get(decision.incident, 0)), decision) for decision in decisions]

    async def write_audit(self, pendings: Sequence[PendingException]) -> None:
        """Write an audit entry for each playbook, before it acts."""
        notes: dict[str, list[AuditNote]] = {}
        for pending in pendings:
            incident, decision = pending.incident, pending.decision
            steps = pending.playbook.steps if pending.playbook is not None else ()
            acts = {"incident": incident.id, "n": decision.n, "owner": incident.owner, "acts": [*actions_of(steps)]}
            why = str(decision.detail.get("words", ""))
            what = "playbook.launch" if pending.by_person else "rule.act"
            note = AuditNote(decision.by, what, incident.job or incident.run, why, acts)
            notes.setdefault(incident.tenant, []).append(note)
        for tenant, some in notes.items():
            await self.audit.write(tenant, some)

    async def move(self, changes: Mapping[str, StatusChange]) -> None:
        """Update the statuses of incidents, by their ids. They serve people and the search for due incidents: concurrent writes of others are kept."""
        if not changes:
            return
        stored, now = await self.incidents.get_statuses(list(changes)), self.clock.now()
        moved = [
            (status, known.version)
            for name, change in changes.items()
            if (known := stored.get(name)) is not None
            and (status := change.applied(known.status, now)) is not known.status
        ]
        if moved:
            await self.incidents.put_statuses(moved)


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A step to carry out."""

    incident: Incident
    n: int
    step: int
    do: Action
    at: int
    """When it was started for the first time."""
    release: str = ""
    later: tuple[ActionKind, ...] = ()
    """The actions of the steps after it."""
    id: str = field(init=False)
    """The id that makes its effect idempotent."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", step_id(self.incident.id, self.n, self.step))


@dataclass(frozen=True, slots=True)
class StepLog:
    """The documents of playbooks' steps."""

    incidents: IncidentStore
    clock: Clock

    async def playbook(self, incident: str, n: int) -> Playbook:
        """The playbook of a recorded decision; `NotFound`."""
        decision = await self.incidents.get_decision(incident, n)
        if decision is None or decision.playbook is None:
            raise NotFound(f"decision {n} on incident {incident} has no playbook")
        return playbook_from_plain(decision.playbook)

    async def once(
        self,
        incident: str,
        n: int,
        step: int,
        act: Callable[[StepRequest], Awaitable[ActionOutcome]],
        *,
        release: str = "",
    ) -> StepEnd:
        """Carry out a step unless it is over; returns its result, also if it ended long ago."""
        over = step_record_id(incident, n, step, StepMark.OVER)
        if (ended := (await self.incidents.get_steps([over])).get(over)) is not None:
            return end_of(ended)
        ask = await self.begin(incident, n, step, release=release)
        try:
            outcome = await act(ask)
        except (NotFound, Permanent, Conflict) as error:
            outcome = ActionOutcome(done=False, detail=str(error))
        state = StepState.DONE if outcome.done else StepState.REFUSED
        detail = {"state": state.value, "detail": outcome.detail[:1000]}
        record = StepRecord(
            incident, n, step, StepMark.OVER, ask.incident.tenant, self.clock.now(), ask.do.action.value, detail
        )
        (first,) = await self.incidents.add_steps([record])
        return end_of(record if first else (await self.incidents.get_steps([over]))[over])

    async def begin(self, incident: str, n: int, step: int, *, release: str = "") -> StepRequest:
        """Record that a step begins; returns the first record if one existed."""
        known = (await self.incidents.get_incidents([incident])).get(incident)
        if known is None:
            raise NotFound(f"there is no incident {incident}")
        playbook = await self.playbook(incident, n)
        if not 0 <= step < len(playbook.steps):
            raise NotFound(f"the playbook has no step {step}")
        do = playbook.steps[step].do
        detail: dict[str, object] = {"release": release} if release else {}
        record = StepRecord(incident, n, step, StepMark.BEGUN, known.tenant, self.clock.now(), do.action.value, detail)
        (first,) = await self.incidents.add_steps([record])
        if not first:
            record = (await self.incidents.get_steps([record.id]))[record.id]
        later = tuple(other.action for other in playbook.steps[step + 1 :])
        return StepRequest(known, n, step, do, record.at, str(record.detail.get("release", "")), later)


def end_of(record: StepRecord) -> StepEnd:
    """The result of a step, from its document."""
    return StepEnd(StepState(str(record.detail["state"])), str(record.detail.get("detail", "")))
