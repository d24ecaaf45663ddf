"""The retry policy: levels with waits, budgets by cause, one ledger over every layer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.incidents.retry_policy import (
    DEFAULT_POLICY,
    INFRASTRUCTURE,
    AfterLastLevel,
    Budgets,
    Layer,
    Ledger,
    LevelledRetryPolicy,
    RetriesExhausted,
    RetryLevel,
    TryAgain,
    entered,
    next_try,
    noticed,
)

THREE = LevelledRetryPolicy("three", (RetryLevel(5, 2), RetryLevel(60), RetryLevel(600)))
causes = st.sampled_from(["memory", "code", "node", "network", "unknown"])


def climb(
    retry_policy: LevelledRetryPolicy, cause: str, budgets: Budgets | None = None
) -> tuple[list[int], RetriesExhausted]:
    waits: list[int] = []
    ledger = Ledger()
    while True:
        answer = next_try(retry_policy, ledger, cause, budgets)
        if isinstance(answer, RetriesExhausted):
            return waits, answer
        waits.append(answer.wait)
        ledger = entered(ledger, cause)


@pytest.mark.ledger("P2-05", "P2-07")
def test_each_level_has_its_wait_and_its_tries_and_then_comes_compensation() -> None:
    waits, end = climb(THREE, "memory")
    assert waits == [5, 5, 60, 600]
    assert end.then is AfterLastLevel.ROLLBACK
    assert climb(LevelledRetryPolicy("one", (RetryLevel(1),), AfterLastLevel.FAIL), "memory") == (
        [1],
        RetriesExhausted(AfterLastLevel.FAIL, "all 1 retries of the retry policy one were used"),
    )


@pytest.mark.ledger("P2-07")
def test_a_cause_may_have_a_budget_of_its_own() -> None:
    waits, end = climb(THREE, "memory", Budgets(causes={"memory": 1}))
    assert waits == [5]
    assert "1 retries for memory; 1 are allowed" in end.reason
    assert climb(THREE, "memory", Budgets(user=2))[0] == [5, 5]
    assert climb(THREE, "code", Budgets(causes={"code": 0}))[0] == []


def test_infrastructure_is_never_charged_to_the_user() -> None:
    ledger = Ledger()
    for _ in range(4):
        ledger = entered(ledger, "node")
    assert ledger.charged == 0
    assert next_try(THREE, ledger, "memory", Budgets(user=1)) == TryAgain(0, 5)
    assert isinstance(next_try(THREE, ledger, "node"), RetriesExhausted)
    assert next_try(THREE, ledger, "network") == TryAgain(0, 5)
    assert isinstance(next_try(THREE, ledger, "network", Budgets(infrastructure=4)), RetriesExhausted)


def test_what_other_layers_tried_is_counted_once() -> None:
    ledger = noticed(Ledger(), Layer.BATCH, "memory", 2)
    assert noticed(ledger, Layer.BATCH, "memory", 2) == ledger
    assert noticed(ledger, Layer.BATCH, "memory", 1) == ledger
    assert next_try(THREE, ledger, "memory") == TryAgain(1, 60)
    ledger = noticed(entered(ledger, "memory"), Layer.ENGINE, "memory", 1)
    assert isinstance(next_try(THREE, ledger, "memory"), RetriesExhausted)
    assert noticed(ledger, Layer.BATCH, "node", 3).spent("node") == 1


@given(st.lists(st.tuples(st.sampled_from(list(Layer)), causes), max_size=30), causes)
def test_the_ledger_adds_up(tries: list[tuple[Layer, str]], cause: str) -> None:
    ledger = Ledger()
    totals: dict[Layer, int] = {}
    for layer, of in tries:
        totals[layer] = totals.get(layer, 0) + 1
        ledger = entered(ledger, of) if layer is Layer.FORESTAY else noticed(ledger, layer, of, totals[layer])
    assert ledger.charged + ledger.uncharged == len(tries)
    assert ledger.uncharged == sum(1 for _, of in tries if of in INFRASTRUCTURE)
    assert Ledger.from_plain(ledger.as_plain()) == ledger
    answer = next_try(DEFAULT_POLICY, ledger, cause)
    if isinstance(answer, TryAgain):
        assert answer.wait == DEFAULT_POLICY.levels[answer.level].wait
        assert isinstance(
            next_try(DEFAULT_POLICY, entered(ledger, cause, tries=DEFAULT_POLICY.tries), cause), RetriesExhausted
        )
