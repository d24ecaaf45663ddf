"""Counts the acts of rules that led to a fault: on its job, on its item and case, and through the worklets above it.

What cannot be too many yet is not looked up: for a job's own acts that is seen by its attempts, for the rest by whether it belongs to a case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forestay.domain.exceptions.incidents.incident import Decision, IncidentStatus
from forestay.domain.exceptions.safeguards.brakes import BrakePolicy, Chain
from forestay.domain.flows.execution.case_names import item_of
from forestay.ports.exceptions.incident_store import MAX_FOUND, IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore
from forestay.services.exceptions.decide.failure_decider import EXLET
from forestay.services.exceptions.detect.pending_failure import PendingFailure

JOBS = 100
"""Jobs whose incidents are looked for at once."""
DEEPEST = 32
"""Worklets above one another that are followed."""
BEGIN_ANEW = frozenset({"restart", "select", "compensate", "rollback"})
"""Actions after which an item or a case begins anew, or something else runs for it."""
REMEMBERED = 10_000


@dataclass(slots=True)
class ChainCounter:
    """The service."""

    incidents: IncidentStore
    store: JobStore
    _above: dict[str, int] = field(default_factory=dict)
    """How deep a case is, which never changes."""

    async def count(self, cases: Sequence[PendingFailure], policy: BrakePolicy) -> Mapping[str, Chain]:
        """The chain of each case that has one, by the id of its incident."""
        least = min(policy.max_by_rule, policy.max_depth)
        often = [one for one in cases if one.document.attempt > least]
        made = await self._on_jobs(often)
        items = await self._on_items({(one.standing.tenant, one.standing.case) for one in cases if _goes_round(one)})
        chains: dict[str, Chain] = {}
        for one in cases:
            acted = [by for incident, by in made.get(one.standing.job, ()) if incident != one.id]
            case = one.standing.case
            on_item = items.get((case, one.standing.item), 0) + items.get((case, ""), 0) if case else 0
            above = await self._depth(one.standing.tenant, case) if case else 0
            chains[one.id] = Chain(acted.count(one.decision.by), len(acted), on_item, above)
        return chains

    async def _on_jobs(self, cases: Sequence[PendingFailure]) -> Mapping[str, list[tuple[str, str]]]:
        """For each job, the incidents that rules acted on and which rule did."""
        found: dict[str, list[tuple[str, str]]] = {}
        for tenant in dict.fromkeys(one.standing.tenant for one in cases):
            jobs = sorted({one.standing.job for one in cases if one.standing.tenant == tenant})
            for start in range(0, len(jobs), JOBS):
                query = IncidentQuery(tenant=tenant, jobs=frozenset(jobs[start : start + JOBS]))
                for known, decision in await self._acted(query):
                    found.setdefault(known.job, []).append((known.id, decision.by))
        return found

    async def _on_items(self, cases: set[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """For each case and item, how often rules made it begin anew; the item is empty for the case as a whole."""
        counts: dict[tuple[str, str], int] = {}
        for tenant, case in sorted(cases):
            for known, decision in await self._acted(IncidentQuery(tenant=tenant, case=case)):
                for target in _begun_anew(decision):
                    place = (case, known.item if target in ("item", "") else "")
                    counts[place] = counts.get(place, 0) + 1
        return counts

    async def _acted(self, query: IncidentQuery) -> Sequence[tuple[IncidentStatus, Decision]]:
        page = await self.incidents.find(query, sort="-at", limit=MAX_FOUND)
        known = {one.standing.id: one.standing for one in page.found}
        made = await self.incidents.decisions_of(list(known)) if known else ()
        return [(known[one.incident], one) for one in made if one.verdict == EXLET and not one.shadow]

    async def _depth(self, tenant: str, case: str) -> int:
        """How many exlets are above a case: each launched the one below it as a worklet."""
        seen, at = list[str](), case
        while at and at not in self._above and len(seen) < DEEPEST:
            seen.append(at)
            records = await self.store.find_records(kind="worklet", job=at, limit=1)
            above = [one for one in records if one.tenant == tenant]
            at = str(above[0].body.get("case", "")) if above else ""
            if above and not at:
                # Launched for a job that no case asked for: one exlet is above it, and nothing more.
                self._remember(seen, 1)
                return self._above[case]
        self._remember(seen, self._above.get(at, 0) + 1 if at and seen else 0)
        return self._above.get(case, 0)

    def _remember(self, cases: Sequence[str], top: int) -> None:
        """`top`: the depth of the last one; each before it is one deeper."""
        if len(self._above) > REMEMBERED:
            self._above.clear()
        for place, case in enumerate(reversed(cases)):
            self._above[case] = top + place


def _goes_round(one: PendingFailure) -> bool:
    """Whether its item was begun before, by a rule or by the flow itself."""
    tie = one.document.tie
    return tie is not None and item_of(tie.work)[1] > 1


def _begun_anew(decision: Decision) -> Sequence[str]:
    """The targets of the steps by which something begins anew."""
    steps = (decision.exlet or {}).get("steps", ())
    found = [one for one in steps if isinstance(one, Mapping)] if isinstance(steps, Sequence) else []
    return [
        str(one.get("target", "")) for one in found if one.get("action") in BEGIN_ANEW and one.get("target") != "job"
    ]
