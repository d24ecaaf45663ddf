"""Which decision stands: the first that was recorded, or a later one that was made after it. Whoever comes second acts by the recorded ones."""

from __future__ import annotations

from collections.abc import Sequence

from forestay.domain.exceptions.incidents.incident import Decision
from forestay.ports.errors import Transient, Unreadable
from forestay.ports.exceptions.incident_store import IncidentStore


async def agreed_on(incidents: IncidentStore, decisions: Sequence[Decision]) -> Sequence[Decision]:
    """The decisions as they are recorded: these, or those of whoever was first. `Unreadable` if one of those cannot be read."""
    added = await incidents.add_decisions(decisions)
    if all(added):
        return decisions
    known = await incidents.get_decisions(
        [(decision.incident, decision.n) for decision, new in zip(decisions, added, strict=True) if not new]
    )
    stand: list[Decision] = []
    for other_decision, new in zip(decisions, added, strict=True):
        decision = other_decision if new else known.get((other_decision.incident, other_decision.n))
        if decision is None:
            raise Transient("a decision could not be read back")
        stand.append(decision)
    return stand


async def readable_of(incidents: IncidentStore, decisions: Sequence[Decision]) -> Sequence[Decision]:
    """As `agreed_on`, without those whose recorded decision cannot be read."""
    try:
        return await agreed_on(incidents, decisions)
    except Unreadable as error:
        return await agreed_on(incidents, [decision for decision in decisions if decision.id not in error.names])


async def newest(incidents: IncidentStore, decisions: Sequence[Decision]) -> Sequence[Decision]:
    """The decisions that stand now: one that was put off may have been made after the first. An incident of which that cannot be read is left out."""
    try:
        known = await incidents.get_statuses([decision.incident for decision in decisions])
        newer = {name: stored.status.n for name, stored in known.items()}
        later = [
            (decision.incident, newer[decision.incident])
            for decision in decisions
            if newer.get(decision.incident, 0) > decision.n
        ]
        made = await incidents.get_decisions(later) if later else {}
    except Unreadable as error:
        # The names are those of statuses, or of decisions: the incident's with a number after it.
        spoilt = {*error.names, *(name.rpartition(":")[0] for name in error.names)}
        rest = [decision for decision in decisions if decision.incident not in spoilt]
        return await newest(incidents, rest) if len(rest) < len(decisions) else ()
    return [made.get((decision.incident, newer.get(decision.incident, 0)), decision) for decision in decisions]
