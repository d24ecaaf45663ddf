"""Safeguards: what is let through, what is refused, and what a storm can cost at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.safeguards.approval_policy import Approval
from forestay.domain.exceptions.safeguards.canary import outcome
from forestay.domain.exceptions.safeguards.rate_limit import (
    DAY,
    MINUTE,
    NEVER,
    Bucket,
    BucketName,
    Meter,
    NoTokens,
    RateLimit,
    TokenLease,
    lease,
)
from forestay.domain.exceptions.safeguards.safeguards import (
    CORE_HOUR,
    EVERY_TENANT,
    ActionGranted,
    ActionRefused,
    ActionRequest,
    Chain,
    Lacking,
    Safeguard,
    SafeguardPolicy,
    SafeguardState,
    Stop,
    add_tokens,
    bunch,
    core_seconds,
    empty,
    permit,
    prices,
    tokens_left,
)
from forestay.domain.exceptions.safeguards.storm import FailureSignature, Trial, notice, with_canary

START = 1_800_000_000_000
SIGN = FailureSignature("node", "s1", "h1")


def request(job: str = "j1", **changed: object) -> ActionRequest:
    known = ActionRequest("alpha", "ann", job, 1, SIGN, "resubmit", "job", rule="domain/site/r1", core_seconds=100)
    return replace(known, **changed)  # type: ignore[arg-type]


def rich(
    safeguards: SafeguardState | None = None, wanted: ActionRequest | None = None, tokens: int = 10**9
) -> SafeguardState:
    """Safeguards with a full purse."""
    safeguards = safeguards or SafeguardState()
    for name, _ in prices(wanted or request()):
        safeguards = add_tokens(safeguards, name, TokenLease("l", tokens, START + DAY), START)
    return safeguards


@dataclass
class Scenario:
    """Buckets that several handlers lease from, as the service does, without a store."""

    policy: SafeguardPolicy
    buckets: dict[BucketName, Bucket] = field(default_factory=dict)
    leased: int = 0

    def ask(
        self, safeguards: SafeguardState, wanted: ActionRequest, now: int
    ) -> tuple[SafeguardState, ActionGranted | ActionRefused]:
        while True:
            answer = permit(safeguards, wanted, now)
            if isinstance(answer, ActionGranted):
                return answer.safeguards, answer
            if isinstance(answer, ActionRefused):
                return safeguards, answer
            for name, least in answer.tokens:
                limit = self.policy.limit(name.meter)
                self.leased += 1
                found_lease = lease(
                    self.buckets.get(name, Bucket(limit)),
                    name=f"l{self.leased}",
                    wanted=bunch(self.policy, name, least),
                    least=least - tokens_left(safeguards.local_tokens, name, now),
                    now=now,
                    lasts=self.policy.lasts,
                )
                if isinstance(found_lease, NoTokens):
                    return safeguards, empty(name, limit, found_lease)
                self.buckets[name], taken = found_lease
                safeguards = add_tokens(safeguards, name, taken, now)


def test_an_act_with_tokens_of_every_bucket_is_granted_and_uses_them_up() -> None:
    answer = permit(rich(tokens=150), request(), START)
    assert isinstance(answer, ActionGranted)
    assert dict(answer.tokens) == {
        BucketName(Meter.GLOBAL, EVERY_TENANT): 1,
        BucketName(Meter.OWNER, "alpha", "ann"): 1,
        BucketName(Meter.SITE, "alpha", "s1"): 1,
        BucketName(Meter.RULE, "alpha", "domain/site/r1"): 1,
        BucketName(Meter.TENANT_HOURS, "alpha"): 100,
        BucketName(Meter.OWNER_HOURS, "alpha", "ann"): 100,
    }
    again = permit(answer.safeguards, request("j2"), START)
    assert isinstance(again, Lacking)
    assert {name.meter for name, _ in again.tokens} == {Meter.TENANT_HOURS, Meter.OWNER_HOURS}


def test_no_token_no_act() -> None:
    answer = permit(SafeguardState(), request(), START)
    assert isinstance(answer, Lacking)
    assert answer.tokens == prices(request())
    late = permit(rich(), request(), START + DAY)
    assert isinstance(late, Lacking), "leases that ran out are no tokens"


def test_the_retry_policy_on_no_site_needs_fewer() -> None:
    bare = prices(request(rule="", sign=FailureSignature("node"), core_seconds=0))
    assert [name.meter for name, _ in bare] == [Meter.GLOBAL, Meter.OWNER]


@pytest.mark.parametrize("tenant", ["alpha", EVERY_TENANT])
def test_a_stop_says_who_and_why(tenant: str) -> None:
    safeguards = replace(rich(), stops=(Stop(tenant, "oscar", "the file system is being moved", START),))
    answer = permit(safeguards, request(), START)
    assert isinstance(answer, ActionRefused)
    assert answer.safeguard is Safeguard.STOP
    assert "oscar stopped all actions" in answer.words
    assert "the file system is being moved" in answer.words
    assert answer.again == START + MINUTE
    assert Stop.from_plain(safeguards.stops[0].as_plain()) == safeguards.stops[0]


def test_anothers_stop_stops_nothing_here() -> None:
    safeguards = replace(rich(), stops=(Stop("beta", "oscar", "", START),))
    assert isinstance(permit(safeguards, request(), START), ActionGranted)


@given(
    st.builds(Chain, *[st.integers(0, 9)] * 4),
    st.sampled_from(["resubmit", "remove", "force-complete", "release", "hold"]),
    st.sampled_from(["job", "run", "all-runs"]),
    st.sampled_from([EVERY_TENANT, "alpha"]),
    st.booleans(),
)
def test_nothing_is_acted_on_under_a_stop(chain: Chain, action: str, target: str, tenant: str, storm: bool) -> None:
    wanted = request(chain=chain, action=action, target=target)
    safeguards = replace(rich(), stops=(Stop("beta", "x", "", 0), Stop(tenant, "oscar", "", 0)))
    if storm:
        safeguards = replace(safeguards, storms=notice(safeguards.storms, [SIGN] * 100, START))
    answer = permit(safeguards, wanted, START)
    assert isinstance(answer, ActionRefused)
    assert answer.safeguard is Safeguard.STOP


def test_a_loop_is_ended() -> None:
    for chain, words in (
        (Chain(by_rule=5, on_job=5), "rule domain/site/r1 acted 5 times on this job; 5 are allowed"),
        (Chain(on_job=3, on_instance=2, above=3), "8 actions followed from each other; 8 are allowed"),
    ):
        assert permit(rich(), request(chain=chain), START) == ActionRefused(Safeguard.LOOP, words, None)
    assert isinstance(permit(rich(), request(chain=Chain(4, 4, 2, 1)), START), ActionGranted)
    assert isinstance(permit(rich(), request(rule="", chain=Chain(by_rule=5, on_job=5)), START), ActionGranted)


def test_an_act_that_needs_approval_waits_for_the_approval_of_this_very_decision() -> None:
    wanted = request(action="remove", target="run", decision="d1")
    answer = permit(rich(), wanted, START)
    assert isinstance(answer, ActionRefused)
    assert answer.safeguard is Safeguard.APPROVAL
    assert answer.again is None
    assert answer.words == "remove of a run needs an approval: nobody has approved it yet"
    good = Approval("alpha", "d1", "ann", "bob", START, START + DAY)
    assert isinstance(permit(rich(), replace(wanted, approval=good), START), ActionGranted)
    for bad in (replace(good, decision="d2"), replace(good, until=START), replace(good, approved_by="ann")):
        refused = permit(rich(), replace(wanted, approval=bad), START)
        assert isinstance(refused, ActionRefused)
        assert refused.safeguard is Safeguard.APPROVAL


def test_a_later_step_that_needs_approval_holds_the_whole_playbook_back() -> None:
    wanted = request(also=(("notify", ""), ("force-complete", "task")))
    answer = permit(rich(), wanted, START)
    assert isinstance(answer, ActionRefused)
    assert answer.safeguard is Safeguard.APPROVAL
    assert answer.words.startswith("force-complete of this task needs an approval")


def test_in_a_storm_one_is_tried_and_the_others_wait() -> None:
    safeguards = rich()
    safeguards = replace(safeguards, storms=notice(safeguards.storms, [SIGN] * 100, START))
    first = permit(safeguards, request("j1"), START)
    assert isinstance(first, ActionGranted)
    (group,) = first.safeguards.storms.groups
    assert first.group == group.id
    second = permit(first.safeguards, request("j2"), START)
    assert isinstance(second, ActionRefused)
    assert second.safeguard is Safeguard.STORM
    assert second.words == "a storm is active (cause node, 100 failures): 1 is being tried first; 1 not finished yet"
    assert second.again == START + MINUTE
    assert second.group == group.id, "the inbox shows them as one"
    failed = outcome(group.canaries[Trial("domain/site/r1")], "j1/1", well=False)
    held = replace(
        first.safeguards, storms=with_canary(first.safeguards.storms, group.id, Trial("domain/site/r1"), failed)
    )
    third = permit(held, request("j2"), START)
    assert isinstance(third, ActionRefused)
    assert third.safeguard is Safeguard.CANARY
    assert third.again is None
    another = permit(held, request("j2", rule="domain/site/r2"), START)
    assert isinstance(another, Lacking), "another rule may be tried: only its tokens are lacking"
    elsewhere = permit(held, request("j3", sign=FailureSignature("memory", "s1", "h1")), START)
    assert isinstance(elsewhere, ActionGranted), "what is not of the storm goes on"


@pytest.mark.finding("F-D6")
def test_the_canary_of_a_storm_tries_the_error_that_it_is_about() -> None:
    """A site's storm of unlike failures: that one of them fails again holds those of its error alone."""
    safeguards = rich()
    sign = FailureSignature("transfer", "s1", "h1")
    safeguards = replace(safeguards, storms=notice(safeguards.storms, [sign] * 100, START))
    tried = permit(safeguards, request("j1", sign=sign, fingerprint="1-door"), START)
    assert isinstance(tried, ActionGranted)
    (group,) = tried.safeguards.storms.groups
    failed = outcome(group.canaries[Trial("domain/site/r1", "1-door")], "j1/1", well=False)
    storms = with_canary(tried.safeguards.storms, group.id, Trial("domain/site/r1", "1-door"), failed)
    held = replace(rich(), storms=storms)
    alike = permit(held, request("j2", sign=sign, fingerprint="1-door"), START)
    assert isinstance(alike, ActionRefused)
    assert alike.safeguard is Safeguard.CANARY
    unlike = permit(held, request("j3", sign=sign, fingerprint="1-quota"), START)
    assert isinstance(unlike, ActionGranted)
    assert unlike.safeguards.storms.groups[0].canaries[Trial("domain/site/r1", "1-door")].held
    second = permit(
        replace(rich(), storms=unlike.safeguards.storms), request("j4", sign=sign, fingerprint="1-quota"), START
    )
    assert isinstance(second, ActionRefused)
    assert second.safeguard is Safeguard.STORM, "of each error one is tried first"


@pytest.mark.long
@pytest.mark.parametrize("recovers", [True, False])
def test_five_thousand_failures_at_once_cost_no_more_than_is_allowed(recovers: bool) -> None:
    policy = SafeguardPolicy(owner_acts=RateLimit(300, 10 * MINUTE), rule_acts=RateLimit(10_000, MINUTE))
    scenario = Scenario(policy)
    storms = notice(
        SafeguardState().storms, [FailureSignature("network", "s1", f"h{n % 200}") for n in range(5_000)], START
    )
    handlers = [SafeguardState(policy, storms=storms) for _ in range(4)]
    waiting = list(range(5_000))
    acts: list[int] = []
    groups = set()
    for minute in range(25):
        now, still = START + minute * MINUTE, list[int]()
        empty_for = set[int]()
        for job in waiting:
            who = job % 4
            if who in empty_for:
                still.append(job)  # this handler knows by now that there are no tokens
                continue
            sign = FailureSignature("network", "s1", f"h{job % 200}")
            safeguards, answer = scenario.ask(replace(handlers[who], storms=storms), request(f"j{job}", sign=sign), now)
            handlers[who], storms = safeguards, safeguards.storms
            if isinstance(answer, ActionRefused):
                still.append(job)
                if answer.safeguard is Safeguard.RATE:
                    empty_for.add(who)
                continue
            acts.append(now)
            group = next(storm_group for storm_group in storms.groups if storm_group.id == answer.group)
            groups.add(group.id)
            ended = outcome(group.canaries[Trial("domain/site/r1")], f"j{job}/1", well=recovers)
            storms = with_canary(storms, group.id, Trial("domain/site/r1"), ended)
        waiting = still
    assert len(groups) == 1
    assert len(acts) + len(waiting) == 5_000, "none is lost"
    for start in acts:
        assert sum(1 for at in acts if start <= at < start + 10 * MINUTE) <= 300
    assert len(acts) == 1 if not recovers else 400 <= len(acts) <= 900


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(0, 90_000)), max_size=120),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_never_more_acts_than_any_limit_allows(
    asked: list[tuple[int, int, int, int]], per_owner: int, per_rule: int
) -> None:
    minute = RateLimit(per_owner, MINUTE)
    policy = SafeguardPolicy(
        all_acts=RateLimit(15, MINUTE),
        owner_acts=minute,
        rule_acts=RateLimit(per_rule, MINUTE),
        owner_hours=RateLimit(1_000, DAY),
        tenant_hours=RateLimit(1_500, DAY),
    )
    scenario = Scenario(policy)
    handlers = [SafeguardState(policy) for _ in range(4)]
    done: list[tuple[int, Mapping[BucketName, int]]] = []
    now = START
    for who, owner, rule, later in asked:
        now += later
        wanted = request(owner=f"o{owner}", rule=f"r{rule}", core_seconds=60)
        handlers[who], answer = scenario.ask(handlers[who], wanted, now)
        if isinstance(answer, ActionGranted):
            done.append((now, dict(answer.tokens)))
        else:
            assert answer.again is None or answer.again > now
    for start, _ in done:
        used: dict[BucketName, int] = {}
        for at, tokens in done:
            for name, count in tokens.items():
                if start <= at < start + policy.limit(name.meter).window:
                    used[name] = used.get(name, 0) + count
        for name, count in used.items():
            assert count <= policy.limit(name.meter).tokens


def test_what_an_empty_bucket_says() -> None:
    owner = BucketName(Meter.OWNER, "alpha", "ann")
    assert empty(owner, RateLimit(500, 10 * MINUTE), NoTokens(0, 77)) == ActionRefused(
        Safeguard.RATE, "acts on jobs of ann: 500 in 10 minutes are used up", 77
    )
    hours = BucketName(Meter.TENANT_HOURS, "alpha")
    assert empty(hours, RateLimit(10 * CORE_HOUR, DAY), NoTokens(0, NEVER)) == ActionRefused(
        Safeguard.CORE_HOURS,
        "extra core-hours of the tenant: this action alone costs more than the 10 in a day that are allowed",
        None,
    )


def test_what_another_run_costs() -> None:
    assert core_seconds(4, expected=100, past=None, limit=3600) == 400
    assert core_seconds(4, expected=100, past=250.4, limit=3600) == 1000
    assert core_seconds(2, expected=None, past=None, limit=50) == 100
    assert core_seconds(2, expected=None, past=None, limit=None) == 2 * CORE_HOUR
    assert core_seconds(0, expected=0, past=0, limit=None) == 1


def test_how_many_tokens_are_leased_at_a_time() -> None:
    policy = SafeguardPolicy()
    assert bunch(policy, BucketName(Meter.OWNER, "alpha", "ann"), 1) == 10
    assert bunch(policy, BucketName(Meter.GLOBAL, ""), 1) == 20
    hours = BucketName(Meter.TENANT_HOURS, "alpha")
    assert bunch(policy, hours, 100) == 2_000
    assert bunch(policy, hours, 10**6) == 10**6
