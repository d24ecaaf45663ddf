"""Counts the acts of rules that led to a failure: on its job, on its task and run, and through the worklets above it.

What cannot be too many yet is not looked up: for a job's own acts that is seen by its attempts, for the rest by whether it belongs to a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forestay.domain.exceptions.incidents.incident import Decision, IncidentStatus
from forestay.domain.exceptions.safeguards.safeguards import Chain, SafeguardPolicy
from forestay.domain.flows.execution.run_names import instance_of
from forestay.ports.exceptions.incident_store import MAX_FOUND, IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore
from forestay.services.exceptions.decide.failure_decider import PLAYBOOK
from forestay.services.exceptions.detect.pending_failure import PendingFailure

JOBS = 100
"""Jobs whose incidents are looked for at once."""
DEEPEST = 32
"""Worklets above one another that are followed."""
BEGIN_ANEW = frozenset({"restart", "select", "compensate", "rollback"})
"""Actions after which a task or a run begins anew, or something else runs for it."""
REMEMBERED = 10_000


@dataclass(slots=True)
class ChainCounter:
    """The service."""

    incidents: IncidentStore
    store: JobStore
    _above: dict[str, int] = field(default_factory=dict)
    """How deep a run is, which never changes."""

    async def count(self, failures: Sequence[PendingFailure], policy: SafeguardPolicy) -> Mapping[str, Chain]:
        """The chain of each run that has one, by the id of its incident."""
        least = min(policy.max_by_rule, policy.max_depth)
        often = [failure for failure in failures if failure.document.attempt > least]
        made = await self._on_jobs(often)
        instances = await self._on_instances(
            {(failure.status.tenant, failure.status.run) for failure in failures if _goes_round(failure)}
        )
        chains: dict[str, Chain] = {}
        for failure in failures:
            acted = [by for incident, by in made.get(failure.status.job, ()) if incident != failure.id]
            run = failure.status.run
            on_instance = instances.get((run, failure.status.instance), 0) + instances.get((run, ""), 0) if run else 0
            above = await self._depth(failure.status.tenant, run) if run else 0
            chains[failure.id] = Chain(acted.count(failure.decision.by), len(acted), on_instance, above)
        return chains

    async def _on_jobs(self, failures: Sequence[PendingFailure]) -> Mapping[str, list[tuple[str, str]]]:
        """For each job, the incidents that rules acted on and which rule did."""
        chains: dict[str, list[tuple[str, str]]] = {}
        for tenant in dict.fromkeys(failure.status.tenant for failure in failures):
            jobs = sorted({failure.status.job for failure in failures if failure.status.tenant == tenant})
            for start in range(0, len(jobs), JOBS):
                query = IncidentQuery(tenant=tenant, jobs=frozenset(jobs[start : start + JOBS]))
                for known, decision in await self._acted(query):
                    chains.setdefault(known.job, []).append((known.id, decision.by))
        return chains

    async def _on_instances(self, runs: set[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """For each run and task, how often rules made it begin anew; the task is empty for the run as a whole."""
        counts: dict[tuple[str, str], int] = {}
        for tenant, run in sorted(runs):
            for known, decision in await self._acted(IncidentQuery(tenant=tenant, run=run)):
                for target in _begun_anew(decision):
                    place = (run, known.instance if target in ("task", "") else "")
                    counts[place] = counts.get(place, 0) + 1
        return counts

    async def _acted(self, query: IncidentQuery) -> Sequence[tuple[IncidentStatus, Decision]]:
        page = await self.incidents.find(query, sort="-at", limit=MAX_FOUND)
        known = {stored.status.id: stored.status for stored in page.statuses}
        made = await self.incidents.decisions_of(list(known)) if known else ()
        return [
            (known[decision.incident], decision)
            for decision in made
            if decision.verdict == PLAYBOOK and not decision.shadow
        ]

    async def _depth(self, tenant: str, run: str) -> int:
        """How many playbooks are above a run: each launched the one below it as a worklet."""
        seen, at = list[str](), run
        while at and at not in self._above and len(seen) < DEEPEST:
            seen.append(at)
            records = await self.store.find_records(kind="worklet", job=at, limit=1)
            above = [record for record in records if record.tenant == tenant]
            at = str(above[0].body.get("run", "")) if above else ""
            if above and not at:
                # Launched for a job that no run asked for: one playbook is above it, and nothing more.
                self._remember(seen, 1)
                return self._above[run]
        self._remember(seen, self._above.get(at, 0) + 1 if at and seen else 0)
        return self._above.get(run, 0)

    def _remember(self, failures: Sequence[str], top: int) -> None:
        """`top`: the depth of the last one; each before it is one deeper."""
        if len(self._above) > REMEMBERED:
            self._above.clear()
        for place, run in enumerate(reversed(failures)):
            self._above[run] = top + place


def _goes_round(failure: PendingFailure) -> bool:
    """Whether its task was begun before, by a rule or by the flow itself."""
    flow_ref = failure.document.flow_ref
    return flow_ref is not None and instance_of(flow_ref.work)[1] > 1


def _begun_anew(decision: Decision) -> Sequence[str]:
    """The targets of the steps by which something begins anew."""
    steps = (decision.playbook or {}).get("steps", ())
    found_steps = [step for step in steps if isinstance(step, Mapping)] if isinstance(steps, Sequence) else []
    return [
        str(step.get("target", ""))
        for step in found_steps
        if step.get("action") in BEGIN_ANEW and step.get("target") != "job"
    ]
