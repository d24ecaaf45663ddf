"""Asks the safeguards about what was decided, in batches: chains of rules, approvals, stops, storms and rate limits. What needs approval is asked for here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.exceptions.safeguards.safeguards import (
    ActionGranted,
    ActionRefused,
    ActionRequest,
    Chain,
    Safeguard,
)
from forestay.domain.exceptions.safeguards.storm import FailureSignature
from forestay.domain.playbooks.playbook import actions_of
from forestay.services.exceptions.pending_exception import PendingException, is_foreign_failure, signature_of
from forestay.services.exceptions.safeguards.action_limits import ActionLimits
from forestay.services.exceptions.safeguards.approvals import Approvals
from forestay.services.exceptions.safeguards.chain_counter import ChainCounter

Permits = Mapping[str, ActionGranted | ActionRefused]
"""What the safeguards said, by the id of the incident; nothing of what needs no permit."""


@dataclass(frozen=True, slots=True)
class Safeguards:
    """The service."""

    limits: ActionLimits
    chains: ChainCounter
    approvals: Approvals

    async def check(self, pendings: Sequence[PendingException], new: Sequence[PendingException] = ()) -> Permits:
        """Ask for whatever makes load. `new`: failures that were never counted for storms; in calm times that is one read and one write for all."""
        asking = [pending for pending in pendings if pending.needs_permit]
        if not (asking or new):
            return {}
        chains = await self.chains.count(asking, self.limits.policy)
        requests = [
            await self.approvals.given_to(pending.request(chains.get(pending.id, Chain()))) for pending in asking
        ]
        permits = await self.limits.permit(requests, [(pending.incident.tenant, pending.sign) for pending in new])
        await self._ask_for_approval(zip(asking, requests, permits, strict=True))
        return {pending.id: permit for pending, permit in zip(asking, permits, strict=True)}

    async def count(self, incidents: Sequence[Incident]) -> None:
        """Count failures of other engines' tasks for storms, once, before anyone asks to act on them; those of our own jobs are counted by `check`."""
        signs: dict[str, list[FailureSignature]] = {}
        for incident in incidents:
            if is_foreign_failure(incident):
                signs.setdefault(incident.tenant, []).append(signature_of(incident))
        for tenant, some in signs.items():
            await self.limits.storms.notice(tenant, some)

    async def _ask_for_approval(
        self, asked: Iterable[tuple[PendingException, ActionRequest, ActionGranted | ActionRefused]]
    ) -> None:
        """A request for each decision that needs approval, and for a storm's group and rule one at a time."""
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
