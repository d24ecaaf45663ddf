"""The pilot's lease, and what was claimed before it was lost."""

from __future__ import annotations

import pytest

from forestay_pilot.clock import steady
from forestay_pilot.link.lease import PilotLease


def never() -> bool:
    return False


def test_a_claim_may_begin_while_the_lease_was_never_lost() -> None:
    lease = PilotLease(steady() + 60, lambda _until: None)
    since = steady()
    lease.extend(steady() + 120)
    assert lease.wait_good(since, never)


@pytest.mark.finding("F-G2")
def test_a_claim_from_before_a_lost_lease_never_begins() -> None:
    """No later heartbeat makes the claim good again: its job may be someone else's by now, and may have ended there."""
    lease = PilotLease(steady() + 60, lambda _until: None)
    before = steady()
    lease.extend(steady() - 1)  # it has passed
    assert not lease.good()
    lease.extend(steady() + 60)
    assert lease.good()
    assert not lease.wait_good(before, never)
    assert lease.wait_good(steady(), never), "what was claimed after that may begin"


def test_who_gives_up_does_not_begin() -> None:
    lease = PilotLease(steady() - 1, lambda _until: None)
    assert not lease.wait_good(steady(), lambda: True)
