"""From a decision to the act: which decision stands, what the brakes say, the entry in the audit log, and then the exlet. The same for every exception."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from holdfast.domain.exlets.exlet import Exlet, actions_of, is_one_write
from holdfast.domain.exlets.exlet_run import RunState, StepState
from holdfast.domain.faults.audit import Note
from holdfast.domain.faults.brakes import Refused as Braked
from holdfast.domain.faults.brakes import Request
from holdfast.domain.faults.incident import CLOSED, Decision, Incident, IncidentState, Standing
from holdfast.ports.clock import Clock
from holdfast.ports.errors import Transient
from holdfast.ports.exlet_engine import ExletEngine
from holdfast.ports.incident_store import IncidentStore
from holdfast.services.keep_audit import KeepAudit
from holdfast.services.lease_brakes import LeaseBrakes
from holdfast.services.run_exlet import RunExlet

NOBODY = "this domain cannot carry it out"


class Did(StrEnum):
    """What became of the wish to act."""

    DONE = "done"
    REFUSED = "refused"
    """It was tried, and could not be done: a person is asked."""
    BEGUN = "begun"
    """The engine carries it out, step by step."""
    PUT_OFF = "put-off"
    """The brakes did not let it through."""


class Acted(NamedTuple):
    """What was done by a decision."""

    did: Did
    words: str = ""
    again: int | None = None
    """When to ask the brakes again; None: only a person can help."""


@dataclass(slots=True)
class ActOnIncidents:
    """The service."""

    incidents: IncidentStore
    clock: Clock
    exlets: RunExlet | None = None
    engine: ExletEngine | None = None
    """Where exlets of several steps live; None: this domain runs no cases."""
    brakes: LeaseBrakes | None = None
    audit: KeepAudit | None = None

    async def agree(self, decisions: Sequence[Decision]) -> list[Decision]:
        """The decisions as they are recorded: these, or those of whoever was first."""
        added = await self.incidents.add_decisions(decisions)
        agreed: list[Decision] = []
        for one, new in zip(decisions, added, strict=True):
            decision = one if new else await self.incidents.get_decision(one.incident, one.n)
            if decision is None:
                raise Transient("a decision could not be read back")
            agreed.append(decision)
        return agreed

    async def newest(self, decisions: Sequence[Decision]) -> list[Decision]:
        """The decisions that stand now: one that was put off may have been made after the first."""
        known = await self.incidents.get_standings([one.incident for one in decisions])
        newest: list[Decision] = []
        for one in decisions:
            stored = known.get(one.incident)
            later = None
            if stored is not None and stored.standing.n > one.n:
                later = await self.incidents.get_decision(one.incident, stored.standing.n)
            newest.append(one if later is None else later)
        return newest

    async def act(self, incident: Incident, decision: Decision, exlet: Exlet, request: Request | None) -> Acted:
        """Carry out what was decided, if the brakes let it; each step takes place once, whoever repeats this.

        Without a request nobody is asked: a person has decided.
        """
        if self.brakes is not None and request is not None:
            (said,) = await self.brakes.permit([request])
            if isinstance(said, Braked):
                return await self._put_off(incident, decision, said)
        if self.exlets is None or (self.engine is None and not is_one_write(exlet, of_case=bool(incident.case))):
            return await self._put_off(incident, decision, None)
        if self.audit is not None:
            # First the entry, then the act.
            acts = {
                "incident": incident.id,
                "n": decision.n,
                "owner": incident.owner,
                "acts": [*actions_of(exlet.steps)],
            }
            why, on = str(decision.detail.get("words", "")), incident.job or incident.case
            what = "rule.act" if request is not None else "exlet.launch"
            await self.audit.write(incident.tenant, [Note(decision.by, what, on, why, acts)])
        if is_one_write(exlet, of_case=bool(incident.case)):
            end = await self.exlets.do_step(incident.id, decision.n, 0)
            done = end.state is StepState.DONE
            state = RunState.COMPLETE if done else RunState.FAILED
            await self.exlets.finish(incident.id, decision.n, state, reason=end.detail)
            return Acted(Did.DONE if done else Did.REFUSED, end.detail)
        assert self.engine is not None  # noqa: S101 - looked at above
        words = ", ".join(actions_of(exlet.steps))
        # Noted first: an exlet that is quickly over says itself where the incident stands then.
        await self.note(incident.id, decision.n, IncidentState.ACTING, words)
        await self.engine.start_exlet(incident.id, decision.n, tenant=incident.tenant, owner=incident.owner)
        return Acted(Did.BEGUN, words)

    async def _put_off(self, incident: Incident, decision: Decision, said: Braked | None) -> Acted:
        """It is not done now: later by itself, or when a person has looked."""
        words, again = (NOBODY, None) if said is None else (said.words, said.again)
        state = IncidentState.HELD if again is None else IncidentState.WAITING
        await self.note(incident.id, decision.n, state, words, due=again, group="" if said is None else said.group)
        return Acted(Did.PUT_OFF, words, again)

    async def note(
        self, incident: str, n: int, state: IncidentState, words: str, *, due: int | None = None, group: str = ""
    ) -> None:
        """Say where an incident stands. Only for people and for who looks after what is due: what others wrote meanwhile is left as it is."""
        known = (await self.incidents.get_standings([incident])).get(incident)
        if known is not None and known.standing.state not in CLOSED and not _over(known.standing, n, state):
            now, group = self.clock.now(), group or known.standing.group
            moved = known.standing.moved(state, now=now, due=due, n=n, note=words, group=group)
            await self.incidents.put_standings([(moved, known.version)])


def _over(standing: Standing, n: int, state: IncidentState) -> bool:
    """Whether an exlet that is to be said to act has come to its end already, and was kept for a person."""
    return state is IncidentState.ACTING and standing.state is IncidentState.HELD and standing.n >= n
