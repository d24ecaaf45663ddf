"""Fair share: averages of the past, and who is served next."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.scheduling.fair_share import LEAST, averaged, of_teams, pressure
from forestay.domain.scheduling.quota import QuotaKind, QuotaLimits, QuotaPolicy, QuotaSubject

_cores = st.dictionaries(st.sampled_from("abc"), st.floats(0, 1000), max_size=3)
_seconds = st.floats(0, 1e6)


def test_half_of_the_past_is_left_after_a_half_life() -> None:
    assert averaged({"a": 8.0}, {}, 3600, 3600) == {"a": 4.0}
    assert averaged({}, {"a": 8.0}, 7200, 3600) == {"a": 6.0}
    assert averaged({"a": LEAST}, {}, 10, 60) == {}, "what is too small is forgotten"
    assert averaged({"a": 8.0}, {}, -5, 3600) == {"a": 8.0}, "a clock that is behind changes nothing"


@given(_cores, _cores, _seconds, st.floats(1, 1e6))
def test_an_average_lies_between_the_past_and_the_present(
    before: dict[str, float], running: dict[str, float], elapsed: float, half_life: float
) -> None:
    for owner, cores in averaged(before, running, elapsed, half_life).items():
        low, high = sorted((before.get(owner, 0.0), running.get(owner, 0.0)))
        assert low - 1e-6 <= cores <= high + 1e-6


@given(_cores, _cores, st.floats(0, 1e4), st.floats(0, 1e4), st.floats(10, 1e4))
def test_two_short_steps_are_one_long_one(
    before: dict[str, float], running: dict[str, float], first: float, second: float, half_life: float
) -> None:
    at_once = averaged(before, running, first + second, half_life)
    in_two = averaged(averaged(before, running, first, half_life), running, second, half_life)
    for owner in at_once.keys() | in_two.keys():
        assert in_two.get(owner, 0.0) == pytest.approx(at_once.get(owner, 0.0), abs=2 * LEAST)


def test_a_team_is_served_by_all_that_its_owners_use() -> None:
    physics = QuotaSubject(QuotaKind.TEAM, "physics")
    policy = QuotaPolicy({physics: QuotaLimits(share=2.0)}, {"ada": "physics", "bob": "physics"})
    cores = {"ada": 6.0, "bob": 2.0, "eve": 5.0}
    teams = of_teams(policy, cores)
    assert teams == {"physics": 8.0}
    order = sorted(("ada", "bob", "cyd", "eve"), key=lambda owner: pressure(policy, owner, cores, teams))
    assert order == ["cyd", "bob", "ada", "eve"]


def served(policy: QuotaPolicy, slots: int, rounds: int, seed: int, past: dict[str, float]) -> tuple[Counter[str], int]:
    """Owners who always have jobs compete for slots that are freed at random; who got how many, and the longest wait in rounds."""
    rng, recent, owners = Random(seed), dict(past), ("ada", "bob", "eve")
    running: Counter[str] = Counter()
    got: Counter[str] = Counter()
    last, longest = dict.fromkeys(owners, 0), 0
    for number in range(rounds):
        for owner in list(running.elements()):
            if rng.random() < 0.2:
                running[owner] -= 1
        recent = averaged(recent, dict(+running), 10.0, 300.0)
        while running.total() < slots:
            both = {owner: running[owner] + recent.get(owner, 0.0) for owner in owners}
            teams = of_teams(policy, both)
            owner = min(owners, key=lambda owner: pressure(policy, owner, both, teams))
            running[owner] += 1
            got[owner] += 1
            longest, last[owner] = max(longest, number - last[owner]), number
    return got, max(longest, *(rounds - 1 - at for at in last.values()))


@pytest.mark.parametrize("seed", range(10))
def test_owners_get_their_shares_and_nobody_starves(seed: int) -> None:
    policy = QuotaPolicy({QuotaSubject(QuotaKind.OWNER, "ada"): QuotaLimits(share=2.0)})
    got, longest = served(policy, 40, 400, seed, {})
    assert got["ada"] / got["bob"] == pytest.approx(2.0, rel=0.1)
    assert got["bob"] / got["eve"] == pytest.approx(1.0, rel=0.1)
    assert longest <= 5


def test_who_used_much_waits_for_some_half_lives_and_no_longer() -> None:
    """A hundred times what there is: it falls below the others' pressure after seven half-lives at most, each of 30 rounds."""
    _, longest = served(QuotaPolicy(), 40, 400, 3, {"ada": 4000.0})
    assert 30 <= longest <= 30 * 8
