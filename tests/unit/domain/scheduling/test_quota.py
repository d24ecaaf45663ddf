"""Quotas: limits, ledgers, and policies as documents."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.jobs.resources import Resources, least_of_class, most_cores_of_class, resource_class
from forestay.domain.scheduling.quota import (
    ASKED_FOR,
    MAX_MEMBERS,
    MAX_SUBJECTS,
    QuotaCharge,
    QuotaKind,
    QuotaLedger,
    QuotaLimits,
    QuotaPolicy,
    QuotaSubject,
    QuotaUse,
    ask,
    charge,
    discharge,
    others_ask,
    use_of,
    why_waiting,
)

ADA, PHYSICS = QuotaSubject(QuotaKind.OWNER, "ada"), QuotaSubject(QuotaKind.TEAM, "physics")
EACH = QuotaSubject(QuotaKind.OWNER, "*")
_amounts = st.none() | st.integers(0, 12)
_uses = st.builds(QuotaUse, st.just(1), st.integers(0, 6), st.integers(0, 2))
_steps = st.lists(st.tuples(st.booleans(), st.lists(st.tuples(st.integers(0, 9), _uses), max_size=4)), max_size=12)


@given(st.builds(QuotaLimits, _amounts, _amounts, _amounts), _steps)
def test_no_limit_is_ever_exceeded_and_entries_are_exact(
    limits: QuotaLimits, steps: list[tuple[bool, list[tuple[int, QuotaUse]]]]
) -> None:
    ledger = QuotaLedger("t", ADA)
    for now, (entering, uses) in enumerate(steps):
        before = ledger.holders.keys()
        if entering:
            charges = [QuotaCharge(f"c{number}", f"j{number}", use) for number, use in uses]
            ledger, entered = charge(ledger, charges, limits, now)
            assert before | entered == ledger.holders.keys()
        else:
            gone = {f"c{number}" for number, _ in uses}
            ledger = discharge(ledger, gone, now)
            assert ledger.holders.keys() == before - gone
        for most, used in zip((limits.jobs, limits.cpus, limits.gpus), ledger.used, strict=True):
            assert most is None or used <= most


def test_who_asks_is_known_for_a_while() -> None:
    ledger = ask(QuotaLedger("t", ADA), "s1", 1_000)
    assert others_ask(ledger, "s2", 2_000)
    assert not others_ask(ledger, "s1", 2_000)
    assert not others_ask(ledger, "s2", 1_000 + ASKED_FOR)
    assert ask(ledger, "s2", 1_000 + ASKED_FOR).asking == {"s2": 1_000 + ASKED_FOR}


def test_what_changes_nothing_is_the_same_ledger() -> None:
    ledger, _ = charge(QuotaLedger("t", ADA), [QuotaCharge("c", "j", QuotaUse(1, 2, 0))], QuotaLimits(), 5)
    again, entered = charge(ledger, [QuotaCharge("c", "j", QuotaUse(1, 2, 0))], QuotaLimits(jobs=0), 9)
    assert again is ledger
    assert entered == {"c"}
    assert discharge(ledger, {"x"}, 9) is ledger


def test_a_job_that_states_no_cores_uses_one() -> None:
    assert use_of(Resources(cpus=0, gpus=1)) == QuotaUse(1, 1, 1)
    lane = least_of_class(resource_class(Resources(cpus=0)))
    assert use_of(lane) == use_of(Resources(cpus=0)), "a lane of such jobs has room for as many"
    assert most_cores_of_class(resource_class(Resources(cpus=0))) == 1, "nor are they free in the fair share"


def test_what_a_job_does_not_need_is_not_lacking() -> None:
    limits = QuotaLimits(gpus=0)
    assert limits.lacking(QuotaUse(), use_of(Resources(cpus=4))) == ""
    assert limits.lacking(QuotaUse(), use_of(Resources(gpus=1))) == "gpus"


def test_the_room_is_what_still_fits() -> None:
    limits = QuotaLimits(jobs=40, cpus=100, gpus=2)
    assert limits.room(QuotaUse(30, 60, 0), QuotaUse(1, 8, 0)) == 5
    assert limits.room(QuotaUse(38, 60, 0), QuotaUse(1, 8, 0)) == 2
    assert limits.room(QuotaUse(50, 60, 5), QuotaUse(1, 8, 1)) == 0
    assert QuotaLimits().room(QuotaUse(50, 60, 5), QuotaUse(1, 8, 1)) is None


def test_the_reason_names_the_quota_and_what_is_used() -> None:
    limits = QuotaLimits(jobs=40, cpus=400, gpus=2)
    used, small = QuotaUse(40, 399, 1), use_of(Resources(cpus=2))
    assert why_waiting(PHYSICS, limits, used, small) == "quota of team physics: 40 of 40 running jobs"
    used = QuotaUse(39, 399, 1)
    assert why_waiting(ADA, limits, used, small) == "quota of owner ada: 399 of 400 cores, and the job needs 2"
    large = use_of(Resources(gpus=4))
    assert why_waiting(ADA, limits, used, large) == "quota of owner ada: at most 2 GPUs, and the job needs 4"
    assert why_waiting(ADA, limits, QuotaUse(), small) == ""


def test_an_owner_counts_in_its_own_quota_or_that_of_everyone_and_in_its_teams() -> None:
    policy = QuotaPolicy({EACH: QuotaLimits(jobs=5), PHYSICS: QuotaLimits(gpus=8)}, {"ada": "physics"})
    assert policy.limited("ada") == ((ADA, QuotaLimits(jobs=5)), (PHYSICS, QuotaLimits(gpus=8)))
    own = policy.having(ADA, QuotaLimits(share=3.0))
    assert isinstance(own, QuotaPolicy)
    assert own.limited("ada") == ((PHYSICS, QuotaLimits(gpus=8)),), "its own limits, if only a share, replace those"
    assert (own.share_of(ADA), own.share_of(PHYSICS)) == (3.0, 1.0)
    assert QuotaPolicy().limited("ada") == ()


def test_a_policy_keeps_what_a_newer_release_wrote() -> None:
    body = {
        "limits": {"owner:ada": {"jobs": 4, "memory": 7}, "project:x": {"jobs": 1}, "team:physics": {"share": 2.0}},
        "teams": {"ada": "physics"},
        "half_life": 60,
        "burst": [1],
    }
    assert QuotaPolicy.from_dict(body).to_dict() == body
    assert QuotaPolicy.from_dict(QuotaPolicy().to_dict()).empty


def test_a_policy_is_bounded() -> None:
    many = {QuotaSubject(QuotaKind.OWNER, f"o{number}"): QuotaLimits(jobs=1) for number in range(MAX_SUBJECTS)}
    assert QuotaPolicy(many).having(ADA, QuotaLimits(jobs=1)) == "a tenant has at most 2,000 quotas"
    assert isinstance(QuotaPolicy(many).having(QuotaSubject(QuotaKind.OWNER, "o1"), QuotaLimits(jobs=2)), QuotaPolicy)
    crowd = QuotaPolicy(teams={f"o{number}": "x" for number in range(MAX_MEMBERS)})
    assert crowd.with_member("ada", "x") == "a tenant has at most 10,000 owners in teams"
    left = crowd.with_member("o1", "")
    assert isinstance(left, QuotaPolicy)
    assert "o1" not in left.teams
