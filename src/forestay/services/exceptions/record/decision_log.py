"""What was decided and done about incidents: create-only decisions, the audit log, and where each incident stands.

Several may handle the same incident. Whoever is first records the decision; whoever comes second acts by the recorded one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.exceptions.incidents.incident import CLOSED, Decision, IncidentState, IncidentStatus
from forestay.domain.exceptions.safeguards.audit import AuditNote
from forestay.domain.playbooks.playbook import actions_of
from forestay.ports.clock import Clock
from forestay.ports.errors import Transient, Unreadable
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.services.exceptions.pending_exception import PendingException
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.shared.incident_settlement import NOTE_KEPT


class StatusChange(NamedTuple):
    """Where an incident is to stand; what is None stays as it is."""

    state: IncidentState
    n: int | None = None
    note: str | None = None
    due: int | None = None
    group: str = ""

    def applied(self, known: IncidentStatus, now: int) -> IncidentStatus:
        """The new status; the same one where there is nothing to say."""
        if known.state in CLOSED:
            return known
        n, note = known.n if self.n is None else self.n, known.note if self.note is None else self.note[:NOTE_KEPT]
        if self.state is IncidentState.ACTING and known.state is IncidentState.HELD and known.n >= n:
            return known  # its playbook has come to its end already, and the incident was kept for a person
        return known.moved(self.state, now=now, due=self.due, n=n, note=note, group=self.group or known.group)


@dataclass(frozen=True, slots=True)
class DecisionLog:
    """The service."""

    incidents: IncidentStore
    audit: AuditLog
    clock: Clock

    async def agree(self, decisions: Sequence[Decision]) -> Sequence[Decision]:
        """The decisions as they are recorded: these, or those of whoever was first. `Unreadable` if one of those cannot be read."""
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
        """The decisions that stand now: one that was put off may have been made after the first. An incident of which that cannot be read is left out."""
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
            # The names are those of statuses, or of decisions: the incident's with a number after it.
            spoilt = {*error.names, *(name.rpartition(":")[0] for name in error.names)}
            rest = [decision for decision in decisions if decision.incident not in spoilt]
            return await self.newest(rest) if len(rest) < len(decisions) else ()
        return [made.get((decision.incident, newer.get(decision.incident, 0)), decision) for decision in decisions]

    async def write_audit(self, pendings: Sequence[PendingException]) -> None:
        """An entry for each playbook, before it acts."""
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
        """Say where incidents stand, by their ids. Only for people and for who looks after what is due: what others wrote meanwhile is left as it is."""
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
