"""Actions that a person, or a person's rule, may not take alone; and the approval by another person.

An approval is for exactly one decision, identified by the digest of all that it would do. It expires, and is valid for that decision only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from forestay.domain.exceptions.safeguards.rate_limit import DAY

LASTS = DAY
"""How long a request stays open, and how long its approval is then valid, in milliseconds."""

_ACTS: Mapping[str, frozenset[str] | None] = {
    "force-complete": None,
    "release": None,
    "remove": frozenset({"run", "ancestors", "all-runs"}),
}
"""Acts that need approval, with the targets for which they do; None: for every target."""


def needed(action: str, target: str, *, rule_owner: str, job_owner: str) -> str | None:
    """Why an act needs approval; None: it needs none. `rule_owner` is empty for rules of the domain or a pack."""
    targets = _ACTS.get(action, frozenset())
    if targets is None or target in targets:
        what = {"run": "a run", "ancestors": "a run and its parent runs", "all-runs": "all runs"}
        return f"{action} of {what.get(target, f'this {target}' if target else 'this')} needs an approval"
    if rule_owner and job_owner and rule_owner != job_owner:
        return f"the rule belongs to {rule_owner} and the job to {job_owner}; this needs an approval"
    return None


def digest_of(decision: Mapping[str, Any]) -> str:
    """The digest that identifies a decision: the SHA-256 of it as JSON with sorted keys."""
    text = json.dumps(decision, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A request that another person agree to one decision."""

    tenant: str
    decision: str
    """Its digest."""
    words: str
    """A description of what would be done."""
    by: str
    """The person responsible: who requested it by hand, or who promoted the rule."""
    at: int
    until: int
    on: str = ""
    """The job, run or flow that it concerns."""
    owner: str = ""
    """Of the job or run."""
    why: str = ""
    act: Mapping[str, Any] = field(default_factory=dict)
    """The action once another person agrees."""


class ApprovalStage(StrEnum):
    """How far a request has come."""

    WAITING = "waiting"
    APPROVED = "approved"
    """Another person agreed, and it is being done."""
    DONE = "done"
    REFUSED = "refused"
    EXPIRED = "expired"
    """Nobody answered in time."""


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """Another person's answer to a request."""

    agreed: bool
    by: str
    at: int
    why: str = ""


def stage_of(asking: ApprovalRequest, answered: ApprovalAnswer | None, *, done: bool, now: int) -> ApprovalStage:
    if answered is None:
        return ApprovalStage.WAITING if now < asking.until else ApprovalStage.EXPIRED
    if not answered.agreed:
        return ApprovalStage.REFUSED
    return ApprovalStage.DONE if done else ApprovalStage.APPROVED


@dataclass(frozen=True, slots=True)
class Approval:
    """Another person's agreement to one decision."""

    tenant: str
    decision: str
    asked_by: str
    approved_by: str
    at: int
    until: int


@dataclass(frozen=True, slots=True)
class NotApproved:
    """Why there is no approval."""

    words: str


def approve(asking: ApprovalRequest, *, by: str, tenant: str, approver: bool, now: int) -> Approval | NotApproved:
    """Approve a request. `approver`: whether that person has the role."""
    if tenant != asking.tenant:
        return NotApproved("there is no such request here")
    if not approver:
        return NotApproved(f"{by} does not have the role approver")
    if by == asking.by:
        return NotApproved(f"{by} requested it; another person must approve it")
    if now >= asking.until:
        return NotApproved("the request has expired; request it again")
    return Approval(asking.tenant, asking.decision, asking.by, by, now, now + LASTS)


def approved(approval: Approval | None, *, tenant: str, decision: str, now: int) -> NotApproved | None:
    """Why an approval is not valid for this decision now; None: it is."""
    if approval is None:
        return NotApproved("nobody has approved it yet")
    if approval.tenant != tenant or approval.decision != decision:
        return NotApproved("the approval is for another decision")
    if approval.asked_by == approval.approved_by:
        return NotApproved("the approval is by the requester")
    if now >= approval.until:
        return NotApproved("the approval has expired")
    return None
