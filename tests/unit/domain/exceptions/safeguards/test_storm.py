"""Storms: many failures of a kind are one group, and what is usual is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.safeguards.canary import Canary, let_all, let_through, outcome
from forestay.domain.exceptions.safeguards.rate_limit import DAY, HOUR, MINUTE
from forestay.domain.exceptions.safeguards.storm import (
    MAX_ERRORS,
    MAX_SIGNS,
    FailureSignature,
    StormGroupKey,
    StormPolicy,
    Storms,
    Trait,
    Trial,
    as_plain,
    from_plain,
    notice,
    pass_time,
    threshold,
    with_canary,
)

POLICY = StormPolicy()
START = 1_800_000_000_000


def test_faults_below_the_least_are_no_storm() -> None:
    assert notice(Storms(), [FailureSignature("node", "s1", "h1")] * 49, START).groups == ()


def test_five_thousand_failures_of_one_cause_over_many_hosts_are_one_group() -> None:
    storms = Storms()
    for batch in range(50):
        signs = [FailureSignature("network", f"s{n % 3}", f"h{(batch * 100 + n) % 400}") for n in range(100)]
        storms = notice(storms, signs, START + batch * 20)
    (group,) = storms.groups
    assert group.key == StormGroupKey(Trait.CAUSE, "network")
    assert group.failures == 5_000
    assert str(group.key) == "cause network"
    assert storms.group_of(FailureSignature("network", "elsewhere")) == group
    assert storms.group_of(FailureSignature("memory", "s1", "h1")) is None


@given(st.permutations(range(600)), st.integers(1, 600), st.integers(1, 40))
def test_one_storm_is_one_group_however_it_comes(order: list[int], batch: int, hosts: int) -> None:
    storms, grouped = Storms(), 0
    for start in range(0, 600, batch):
        signs = [FailureSignature("disk", f"s{n % 2}", f"h{n % hosts}") for n in order[start : start + batch]]
        storms = notice(from_plain(as_plain(storms), POLICY), signs, START + start)
        assert len(storms.groups) <= 1
        grouped = max(grouped, len(storms.groups))
    assert grouped == 1
    assert storms.groups[0].failures == 600


def test_a_host_on_which_everything_fails_is_a_group_of_its_host() -> None:
    causes = ["node", "disk", "code", "transfer"]
    signs = [
        FailureSignature(causes[n % 4], "s1" if n < 60 else f"s{n}", "h7" if n < 60 else f"h{n}") for n in range(120)
    ]
    storms = notice(Storms(), signs, START)
    assert [group.key for group in storms.groups] == [StormGroupKey(Trait.SITE, "s1")], "asked before the host"
    alone = [sign._replace(site="") for sign in signs]
    assert [group.key for group in notice(Storms(), alone, START).groups] == [StormGroupKey(Trait.HOST, "h7")]


def test_two_causes_at_once_are_two_groups() -> None:
    signs = [FailureSignature("node", "s1", "h1")] * 60 + [FailureSignature("memory", "s1", "h1")] * 70
    assert {group.key.value for group in notice(Storms(), signs, START).groups} == {"node", "memory"}


def test_what_comes_every_day_is_usual() -> None:
    storms, now = Storms(), START
    for _ in range(2 * DAY // MINUTE):
        now += MINUTE
        storms = notice(storms, [FailureSignature("preempted", "s1")] * 8, now)  # 40 in a window
    assert storms.groups == ()
    key = StormGroupKey(Trait.CAUSE, "preempted")
    assert 150 <= threshold(storms, key) <= 200
    assert notice(storms, [FailureSignature("preempted", "s1")] * 100, now).groups == ()
    assert len(notice(storms, [FailureSignature("preempted", "s1")] * 300, now).groups) == 1
    forgotten = pass_time(storms, now + 10 * DAY)
    assert threshold(forgotten, key) == POLICY.least


def test_a_storm_whose_canary_let_all_through_is_over_when_it_is_calm() -> None:
    storms = notice(Storms(), [FailureSignature("node")] * 100, START)
    group = storms.groups[0]
    recovered = with_canary(storms, group.id, Trial("r1"), let_all(Canary()))
    assert pass_time(recovered, START + MINUTE).groups, "not calm yet"
    assert pass_time(recovered, START + 7 * MINUTE).groups == ()


def test_a_group_that_waits_for_an_outcome_or_a_person_stays() -> None:
    storms = notice(Storms(), [FailureSignature("node")] * 100, START)
    group = storms.groups[0]
    let = let_through(Canary(), "j1/1")
    assert isinstance(let, Canary)
    waiting = with_canary(storms, group.id, Trial("r1"), let)
    assert len(pass_time(waiting, START + 5 * HOUR).groups) == 1
    held = with_canary(storms, group.id, Trial("r1"), outcome(let, "j1/1", well=False))
    assert pass_time(held, START + 5 * DAY).groups[0].held
    assert pass_time(storms, START + 5 * HOUR).groups == (), "nobody asked for long"


def test_a_group_that_is_closed_takes_no_outcome() -> None:
    storms = notice(Storms(), [FailureSignature("node")] * 100, START)
    assert with_canary(storms, "no such group", Trial("r1"), Canary()).groups == storms.groups


def test_what_is_tried_is_told_apart_by_error_to_an_end() -> None:
    storms = notice(Storms(), [FailureSignature("node")] * 100, START)
    group = storms.groups[0]
    for number in range(MAX_ERRORS):
        trial = storms.groups[0].trial("r1", f"1-{number}")
        assert trial == Trial("r1", f"1-{number}")
        storms = with_canary(storms, group.id, trial, Canary())
    assert storms.groups[0].trial("r1", "1-7") == Trial("r1", "1-7"), "it has a canary of its own"
    assert storms.groups[0].trial("r1", "1-new") == Trial("r1"), "further errors are tried together"


def test_tries_are_stored_by_rule_and_error_and_those_of_the_release_before_are_read() -> None:
    storms = notice(Storms(), [FailureSignature("node")] * 100, START)
    group = storms.groups[0]
    storms = with_canary(storms, group.id, Trial("r1"), let_all(Canary()))
    old = as_plain(storms)
    assert "of_errors" not in old["groups"][0]
    assert from_plain(old, POLICY) == storms
    storms = with_canary(storms, group.id, Trial("r1", "1-abc"), Canary(pending=("j1/1",), let=1))
    assert from_plain(as_plain(storms), POLICY) == storms


def test_there_is_an_end_to_the_signs_that_are_told_apart() -> None:
    signs = [FailureSignature(f"c{n % 16}", f"s{n % 40}", f"h{n}") for n in range(20_000)]
    storms = notice(Storms(), signs, START)
    (slice_,) = storms.slices.values()
    assert len(slice_) <= MAX_SIGNS + 16
    assert sum(slice_.values()) == 20_000
    assert len(storms.groups) == 16


def test_stored_and_read_it_is_the_same() -> None:
    storms = notice(
        Storms(),
        [FailureSignature("node", "s1", f"h{n}") for n in range(100)] + [FailureSignature("memory")] * 3,
        START,
    )
    storms = notice(storms, [FailureSignature("memory")], START + MINUTE)
    assert from_plain(as_plain(storms), POLICY) == storms
