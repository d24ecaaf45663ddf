"""Checks decisions against the safeguards, in batches: rule chains, approvals, emergency stops, storms and rate limits. It requests the approvals that are needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from forestay.domain.data.remake import remake_depth
from forestay.domain.exceptions.incidents.incident import PLAYBOOK, Decision, Incident, IncidentStatus
from forestay.domain.exceptions.safeguards.safeguards import (
    ActionGranted,
    ActionRefused,
    ActionRequest,
    Chain,
    Safeguard,
    SafeguardPolicy,
    why_alone,
)
from forestay.domain.exceptions.safeguards.storm import FailureSignature
from forestay.domain.playbooks.playbook import actions_of
from forestay.ports.exceptions.incident_store import MAX_FOUND, IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore
from forestay.services.exceptions.exception_event import PendingException, is_foreign_failure, signature_of
from forestay.services.exceptions.safeguards.action_limits import ActionLimits
from forestay.services.exceptions.safeguards.approvals import Approvals

Permits = Mapping[str, ActionGranted | ActionRefused]
"""The answers of the safeguards, by the id of the incident; actions that need no permit are left out."""


@dataclass(frozen=True, slots=True)
class Safeguards:
    """The service."""

    limits: ActionLimits
    chains: ChainCounter
    approvals: Approvals

    async def check(self, pendings: Sequence[PendingException], new: Sequence[PendingException] = ()) -> Permits:
        """Request permits for all actions that cause load. `new`: failures never counted for storms; without storms this costs one read and one write for all."""
        asking = [pending for pending in pendings if pending.needs_permit]
        if not (asking or new):
            return {}
        chains = await self.chains.count(asking, self.limits.policy)
        requests = [pending.request(chains.get(pending.id, Chain())) for pending in asking]
        if any(request.rule and why_alone(request) is not None for request in requests):
            requests = [await self.approvals.given_to(request) for request in requests]
        permits = await self.limits.permit(requests, [(pending.incident.tenant, pending.sign) for pending in new])
        await self._ask_for_approval(zip(asking, requests, permits, strict=True))
        return {pending.id: permit for pending, permit in zip(asking, permits, strict=True)}

    async def count(self, incidents: Sequence[Incident]) -> None:
        """Count failures of other engines' tasks for storms, once, before any action on them is requested; those of our own jobs are counted by `check`."""
        signs: dict[str, list[FailureSignature]] = {}
        for incident in incidents:
            if is_foreign_failure(incident):
                signs.setdefault(incident.tenant, []).append(signature_of(incident))
        for tenant, some in signs.items():
            await self.limits.storms.notice(tenant, some)

    async def _ask_for_approval(
        self, asked: Iterable[tuple[PendingException, ActionRequest, ActionGranted | ActionRefused]]
    ) -> None:
        """Request approval for each decision that needs it; for a storm's group and rule, one at a time."""
        groups = set[tuple[str, str]]()
        for pending, request, permit in asked:
            if not isinstance(permit, ActionRefused) or permit.safeguard is not Safeguard.APPROVAL:
                continue
            group = (permit.group, request.rule)
            if permit.group and group in groups:
                continue
            groups.add(group)
            acts = ", ".join(actions_of(pending.playbook.steps if pending.playbook is not None else ()))
            job = pending.job.id if pending.job is not None else ""
            await self.approvals.ask_for(request, pending.decision, acts, job=job)


JOBS = 100
"""Jobs whose incidents are searched at once."""
BEFORE = 100
"""The most earlier incidents of a task or a run that are checked for actions of rules."""
DEEPEST = 32
"""The greatest depth of nested worklets that is followed."""
BEGIN_ANEW = frozenset({"restart", "select", "compensate", "rollback"})
"""Actions after which a task or a run starts again, or something else runs for it."""
REMEMBERED = 10_000


@dataclass(slots=True)
class ChainCounter:
    """Counts the actions of rules that led to an exception: on its job, on its task and run, and through the worklets and remakes above it.

    Chains that cannot be too long yet are not looked up: for a job's own actions its attempts tell, for the rest whether it belongs to a run.
    """

    incidents: IncidentStore
    store: JobStore
    _above: dict[str, int] = field(default_factory=dict)
    """The depth of each run, which never changes."""

    async def count(self, pendings: Sequence[PendingException], policy: SafeguardPolicy) -> Mapping[str, Chain]:
        """The chain of each exception that has one, by the id of its incident."""
        failures = [pending for pending in pendings if pending.job is not None and pending.by_rule]
        others = [pending for pending in pendings if pending.job is None and pending.incident.run]
        least = min(policy.max_by_rule, policy.max_depth)
        if others or any(failure.incident.attempt > least or failure.incident.round > 1 for failure in failures):
            # Actions may follow each other within the second by which a search is behind, and none must be missed.
            await self.incidents.refresh()
        chains = await self._of_failures(failures, least)
        return {**chains, **{pending.id: await self._of_run(pending) for pending in others}}

    async def _of_failures(self, failures: Sequence[PendingException], least: int) -> Mapping[str, Chain]:
        often = [failure for failure in failures if failure.incident.attempt > least]
        made = await self._on_jobs(often)
        instances = await self._on_instances(
            {(failure.incident.tenant, failure.incident.run) for failure in failures if failure.incident.round > 1}
        )
        chains: dict[str, Chain] = {}
        for failure in failures:
            incident = failure.incident
            acted = [by for name, by in made.get(incident.job, ()) if name != incident.id]
            run = incident.run
            on_instance = instances.get((run, incident.instance), 0) + instances.get((run, ""), 0) if run else 0
            above = await self._depth(incident.tenant, run) if run else 0
            above += remake_depth(failure.job) if failure.job is not None else 0
            chains[incident.id] = Chain(acted.count(failure.decision.by), len(acted), on_instance, above)
        return chains

    async def _of_run(self, pending: PendingException) -> Chain:
        """The chain of an exception that is not a job's failure: earlier actions of rules on its task or run, and in the runs whose playbooks started it."""
        incident = pending.incident
        query = IncidentQuery(tenant=incident.tenant, run=incident.run, instance=incident.instance)
        acted = [
            decision.by for known, decision in await self._acted(query, BEFORE) if known.n and known.id != incident.id
        ]
        above = await self._depth(incident.tenant, incident.run)
        return Chain(by_rule=acted.count(pending.decision.by), on_instance=len(acted), above=above)

    async def _on_jobs(self, failures: Sequence[PendingException]) -> Mapping[str, list[tuple[str, str]]]:
        """For each job, the incidents on which rules acted, each with the rule."""
        chains: dict[str, list[tuple[str, str]]] = {}
        for tenant in dict.fromkeys(failure.incident.tenant for failure in failures):
            jobs = sorted({failure.incident.job for failure in failures if failure.incident.tenant == tenant})
            for start in range(0, len(jobs), JOBS):
                query = IncidentQuery(tenant=tenant, jobs=frozenset(jobs[start : start + JOBS]))
                for known, decision in await self._acted(query):
                    chains.setdefault(known.job, []).append((known.id, decision.by))
        return chains

    async def _on_instances(self, runs: set[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """For each run and task, how often rules restarted it; the task is empty for the run as a whole."""
        counts: dict[tuple[str, str], int] = {}
        for tenant, run in sorted(runs):
            for known, decision in await self._acted(IncidentQuery(tenant=tenant, run=run)):
                for target in _begun_anew(decision):
                    place = (run, known.instance if target in ("task", "") else "")
                    counts[place] = counts.get(place, 0) + 1
        return counts

    async def _acted(self, query: IncidentQuery, most: int = MAX_FOUND) -> Sequence[tuple[IncidentStatus, Decision]]:
        page = await self.incidents.find(query, sort="-at", limit=most)
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
            # By its id: a search may be a second behind a worklet that fails at once.
            above = await self.store.get_record(f"worklet:{at}")
            if above is not None and above.tenant != tenant:
                above = None
            at = str(above.body.get("run", "")) if above is not None else ""
            if above is not None and not at:
                # Launched for a job that belongs to no run: only one playbook is above it.
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


def _begun_anew(decision: Decision) -> Sequence[str]:
    """The targets of the steps that restart something."""
    steps = (decision.playbook or {}).get("steps", ())
    found_steps = [step for step in steps if isinstance(step, Mapping)] if isinstance(steps, Sequence) else []
    return [
        str(step.get("target", ""))
        for step in found_steps
        if step.get("action") in BEGIN_ANEW and step.get("target") != "job"
    ]
