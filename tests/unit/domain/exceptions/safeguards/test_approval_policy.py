"""What needs approval, and whose agreement counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forestay.domain.exceptions.safeguards.approval_policy import (
    LASTS,
    Approval,
    ApprovalRequest,
    NotApproved,
    approve,
    approved,
    digest_of,
    needed,
)

DECISION = digest_of({"incident": "i1", "n": 1, "steps": [{"action": "remove", "target": "run"}]})
ASKING = ApprovalRequest("alpha", DECISION, "remove run c1", "ann", at=100, until=1_000)


@pytest.mark.parametrize(
    ("action", "target", "needs"),
    [
        ("force-complete", "job", True),
        ("force-complete", "task", True),
        ("release", "job", True),
        ("remove", "task", False),
        ("remove", "run", True),
        ("remove", "ancestors", True),
        ("remove", "all-runs", True),
        ("restart", "task", False),
        ("force-fail", "task", False),
        ("suspend", "all-runs", False),
    ],
)
def test_which_acts_need_one(action: str, target: str, needs: bool) -> None:
    assert (needed(action, target, rule_owner="", job_owner="ann") is not None) is needs


def test_a_rule_that_acts_on_anothers_job_needs_one() -> None:
    assert needed("resubmit", "job", rule_owner="ann", job_owner="ann") is None
    why = needed("resubmit", "job", rule_owner="ann", job_owner="bob")
    assert why == "the rule belongs to ann and the job to bob; this needs an approval"


def test_another_person_with_the_role_approves_exactly_this_decision() -> None:
    approval = approve(ASKING, by="bob", tenant="alpha", approver=True, now=200)
    assert approval == Approval("alpha", DECISION, "ann", "bob", 200, 200 + LASTS)
    assert approved(approval, tenant="alpha", decision=DECISION, now=300) is None
    other = digest_of({"incident": "i1", "n": 2, "steps": [{"action": "remove", "target": "run"}]})
    for wrong in (
        approved(approval, tenant="alpha", decision=other, now=300),
        approved(approval, tenant="beta", decision=DECISION, now=300),
        approved(approval, tenant="alpha", decision=DECISION, now=200 + LASTS),
        approved(replace(approval, approved_by="ann"), tenant="alpha", decision=DECISION, now=300),
        approved(None, tenant="alpha", decision=DECISION, now=300),
    ):
        assert isinstance(wrong, NotApproved)


@pytest.mark.parametrize(
    ("by", "tenant", "approver", "now", "words"),
    [
        ("ann", "alpha", True, 200, "ann requested it; another person must approve it"),
        ("bob", "alpha", False, 200, "bob does not have the role approver"),
        ("bob", "beta", True, 200, "there is no such request here"),
        ("bob", "alpha", True, 1_000, "the request has expired; request it again"),
    ],
)
def test_who_may_not_approve(by: str, tenant: str, approver: bool, now: int, words: str) -> None:
    assert approve(ASKING, by=by, tenant=tenant, approver=approver, now=now) == NotApproved(words)


def test_the_order_of_fields_makes_no_other_decision() -> None:
    assert digest_of({"a": 1, "b": [1, 2]}) == digest_of({"b": [1, 2], "a": 1})
    assert digest_of({"a": 1, "b": [1, 2]}) != digest_of({"a": 1, "b": [2, 1]})
