"""The documents of a playbook's steps: before a step acts, one says so under the step's own name (incident, number of the decision, step); after it, another one
says how it ended. Both are create-only.

Whoever comes to a step that is over acts no more; whoever comes to one that was begun repeats it as it was begun, with the same id and time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from forestay.domain.exceptions.incidents.incident import Incident, StepMark, StepRecord, step_record_id
from forestay.domain.playbooks.action import Action
from forestay.domain.playbooks.playbook import Playbook, playbook_from_plain
from forestay.domain.playbooks.playbook_run import StepEnd, StepState, step_id
from forestay.ports.clock import Clock
from forestay.ports.errors import Conflict, NotFound, Permanent
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.services.exceptions.act.job_actions import ActionOutcome


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A step that is to be done."""

    incident: Incident
    n: int
    step: int
    do: Action
    at: int
    """When it was begun, the first time."""
    release: str = ""

    @property
    def id(self) -> str:
        return step_id(self.incident.id, self.n, self.step)


@dataclass(frozen=True, slots=True)
class StepLog:
    """The service."""

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
        """Have a step done unless it is over; how it ended, also if that was long ago."""
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
        """Say that a step begins; as whoever was the first has said."""
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
        return StepRequest(known, n, step, do, record.at, str(record.detail.get("release", "")))


def end_of(record: StepRecord) -> StepEnd:
    """How a step ended, by its document."""
    return StepEnd(StepState(str(record.detail["state"])), str(record.detail.get("detail", "")))
