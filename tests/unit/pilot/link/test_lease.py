"""The pilot's lease, and what was claimed before it was lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.pilot.conftest import RunningPilot
from tests.unit.pilot.fake_server import FakeServer, until

from forestay_pilot.clock import steady
from forestay_pilot.link.held_claims import HeldClaims
from forestay_pilot.link.lease import PilotLease
from forestay_pilot.process.payload import ClaimedJob, read_claim


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


def test_an_answer_to_a_request_from_before_a_lost_lease_is_not_welcome() -> None:
    """Its claim may have been released while the lease was lost, though the answer came when it was good again."""
    lease = PilotLease(steady() + 60, lambda _until: None)
    asked = steady()
    assert lease.unbroken(asked)
    lease.extend(steady() - 1)
    assert not lease.unbroken(steady()), "it has passed"
    lease.extend(steady() + 60)
    assert not lease.unbroken(asked)
    assert lease.unbroken(steady())


def claimed(name: str) -> ClaimedJob:
    return read_claim({"job": name, "generation": 0, "attempt": 1, "claim": name})


def test_a_claim_counts_from_the_request_that_brought_it() -> None:
    held = HeldClaims(slots=1, batch=1, resources={})
    request = held.request()
    assert held.add([claimed("a")], request) == []
    taken = held.take()
    assert taken is not None
    assert taken.since == request.sent


@pytest.mark.parametrize(("unanswered", "begun", "runs"), [(0, 0, True), (0, 1, True), (0, 2, False), (1, 1, False)])
def test_an_answer_that_two_heartbeats_overtook_is_too_late(unanswered: int, begun: int, runs: bool) -> None:
    """Neither named its claims, so they are free again. A heartbeat on its way when the request was sent may be stored after it."""
    held = HeldClaims(slots=1, batch=1, resources={})
    held.names()
    held.acknowledged()
    for _ in range(unanswered):
        held.names()
    request = held.request()
    for _ in range(begun):
        held.names()
        held.acknowledged()
    unstarted = held.add([claimed("a")], request)
    assert [entry.claim for entry in unstarted] == ([] if runs else ["a"])
    assert held.names() == ["a"], "it is named until it is settled"


def test_a_late_claim_is_handed_back_and_never_begun(
    server: FakeServer, pilot: Callable[..., RunningPilot], tmp_path: Path
) -> None:
    server.heartbeat_every = 0.2
    server.failures.claims_after_heartbeats = 3
    ran = tmp_path / "ran"
    late = server.submit("touch", str(ran))
    pilot()
    assert server.end_of(late)["reason"] == "not-started"
    until(lambda: server.seen.heartbeats[-1]["claims"] == [], "a heartbeat without claims")
    assert not ran.exists()
