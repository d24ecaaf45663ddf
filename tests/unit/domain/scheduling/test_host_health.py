"""When a host is closed, probed and opened again; and when it is not its failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.scheduling.host_health import (
    HealthPolicy,
    HostFailure,
    HostHealth,
    HostStatus,
    absolved,
    allowance,
    as_plain,
    blamed,
    close,
    close_by_hand,
    convinced,
    explained,
    failed,
    from_plain,
    may_close,
    passed,
    probed,
    too_many,
    went_well,
)

POLICY = HealthPolicy()
SECOND = 1000


def after(*failures: HostFailure, host: str = "n1") -> HostHealth:
    health = HostHealth(host)
    for failure in failures:
        health = failed(health, failure, now=failure.at, policy=POLICY)
    return health


def sure(number: int, at: int = 0) -> HostFailure:
    return HostFailure(f"job{number}:1", at, "ada", "spec", "node", sure=True)


def unsure(number: int, specification: str = "spec", owner: str = "ada") -> HostFailure:
    return HostFailure(f"job{number}:1", 0, owner, specification, "unknown")


def test_five_fast_failures_close_a_host_and_four_do_not() -> None:
    assert not too_many(after(*map(sure, range(4))), 0, POLICY)
    assert too_many(after(*map(sure, range(5))), 0, POLICY)


def test_a_minute_of_nothing_but_failures_closes_a_host() -> None:
    health = after(sure(1), sure(2, 20 * SECOND))
    assert not too_many(health, 59 * SECOND, POLICY)
    assert too_many(health, 60 * SECOND, POLICY)
    assert not too_many(after(sure(1)), 100 * SECOND, POLICY), "one failure is no series"


def test_a_program_that_fails_everywhere_closes_nothing() -> None:
    assert not too_many(after(*map(unsure, range(20))), 0, POLICY)


@pytest.mark.finding("F-B3")
def test_failures_of_several_owners_for_no_known_reason_do_and_those_of_one_do_not() -> None:
    assert too_many(after(*map(unsure, range(4)), unsure(9, owner="bob")), 0, POLICY)
    assert not too_many(after(*map(unsure, range(4)), unsure(9, specification="another")), 0, POLICY)


def test_the_same_failure_is_not_counted_twice_unless_it_is_surer_now() -> None:
    health = after(unsure(1), unsure(1))
    assert len(health.failures) == 1
    health = failed(health, sure(1), now=0, policy=POLICY)
    assert [failure.sure for failure in health.failures] == [True]


def test_which_causes_are_the_hosts() -> None:
    assert (blamed("node"), blamed("bad-input"), blamed("unknown")) == (True, False, None)


def test_a_closed_host_gets_nothing_but_a_probe_and_opens_when_that_goes_well() -> None:
    health = close(after(*map(sure, range(5))), now=0, policy=POLICY)

    def may(at: int) -> int | None:
        return allowance(health, proven=True, out=0, now=at, policy=POLICY)

    assert may(29 * SECOND) == 0
    assert may(30 * SECOND) == 1
    health = probed(health, now=30 * SECOND)
    assert may(31 * SECOND) == 0
    health = failed(health, sure(9, 32 * SECOND), now=32 * SECOND, policy=POLICY)
    assert health.status is HostStatus.CLOSED
    assert (may(91 * SECOND), may(92 * SECOND)) == (0, 1), "the second wait is twice as long"
    assert allowance(went_well(probed(health, now=92 * SECOND)), proven=True, out=0, now=0, policy=POLICY) is None


def test_a_probe_that_runs_for_long_opens_the_host_too() -> None:
    health = probed(close(after(*map(sure, range(5))), now=0, policy=POLICY), now=30 * SECOND)
    assert passed(health, now=89 * SECOND, policy=POLICY).status is HostStatus.PROBING
    assert passed(health, now=90 * SECOND, policy=POLICY).status is HostStatus.OPEN


def test_a_closing_ends_by_itself() -> None:
    health = close(after(*map(sure, range(5))), now=0, policy=POLICY)
    assert passed(health, now=3599 * SECOND, policy=POLICY).status is HostStatus.CLOSED
    assert passed(health, now=3600 * SECOND, policy=POLICY).quiet


def test_what_a_person_closed_is_neither_probed_nor_opened_by_a_success() -> None:
    health = close_by_hand("n1", by="ada", reason="a disk", now=0, seconds=None)
    assert allowance(health, proven=True, out=0, now=10**9, policy=POLICY) == 0
    assert went_well(health) == passed(health, now=10**12, policy=POLICY) == health
    assert explained(health, 0) == "closed by ada: a disk"
    assert passed(close_by_hand("n1", by="ada", reason="", now=0, seconds=5), now=5 * SECOND, policy=POLICY).quiet


@pytest.mark.parametrize(("closed", "hosts", "may"), [(0, 1, False), (0, 2, True), (1, 7, False), (1, 8, True)])
def test_at_most_a_share_of_the_hosts_is_closed(closed: int, hosts: int, may: bool) -> None:
    assert may_close(closed, hosts, POLICY) is may


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 64))
def test_an_unproven_host_never_has_more_than_it_may_lose(asks: list[int], slots: int) -> None:
    """A black hole: every job that it gets fails before it asks the next time."""
    health: HostHealth | None = None
    eaten = 0
    for number, _ in enumerate(asks):
        may = allowance(health, proven=False, out=0, now=0, policy=POLICY)
        assert may is not None
        for place in range(min(may, slots)):
            eaten += 1
            health = failed(health or HostHealth("n1"), sure(1000 * number + place), now=0, policy=POLICY)
        if health is not None and health.status is HostStatus.OPEN and too_many(health, 0, POLICY):
            health = close(health, now=0, policy=POLICY)
    assert eaten <= POLICY.most


def test_it_is_read_back_as_it_was_written() -> None:
    health = close(after(*map(sure, range(5))), now=7, policy=POLICY)
    assert from_plain(as_plain({"n1": health, "n2": HostHealth("n2")})) == {"n1": health}
    assert from_plain({"n1": {"status": "something new"}}) == {}


def test_the_words_say_why_and_when() -> None:
    health = close(after(*(sure(number, number * SECOND) for number in range(5))), now=5 * SECOND, policy=POLICY)
    assert explained(health, 5 * SECOND) == (
        "closed: 5 jobs failed there within 5 s, and none succeeded (node); tried again in 30 s"
    )


@pytest.mark.finding("F-B3")
def test_failures_that_may_be_the_programs_leave_the_host_to_others() -> None:
    health = after(*map(unsure, range(5)))
    assert allowance(health, proven=True, out=0, now=0, policy=POLICY) is None
    assert allowance(health, proven=False, out=2, now=0, policy=POLICY) == 3
    assert absolved(health, "spec").quiet
    assert too_many(convinced(health, lambda spec: spec == "spec"), 0, POLICY)
