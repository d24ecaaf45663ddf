"""How fast caches are looked into, and what each policy keeps of the same trace: the benchmark, held to what the docs say."""

from __future__ import annotations

import random

import pytest
from bench.cache import look_ups, replay, table, traces, workflow
from tests.speed import clock_limit

from forestay_pilot.cache.cache_policy import POLICIES

GB = 1000**3


@pytest.mark.measured
@pytest.mark.ledger("P3-22")
def test_thousands_of_look_ups_a_second() -> None:
    """Each with a hard link into a job's folder and with all that letting go of it again needs."""
    best = max((look_ups(2000, 0.2) for _ in range(4)), key=lambda rates: rates["gives_a_second"])
    slower = clock_limit(1.0)
    assert best["gives_a_second"] > 2000 / slower
    assert best["finds_a_second"] > 50_000 / slower


@pytest.mark.ledger("P3-21")
def test_policies_differ_as_the_docs_say() -> None:
    saved = {
        name: {policy: replay(trace, 38 * GB, policy)["seconds"] for policy in POLICIES}
        for name, trace in traces(1500).items()
    }
    for chain in ("W1", "W2", "W3"):
        fields = saved[chain]
        assert fields["fifo"] >= fields["lru"] > fields["gdsf"], "a file that was read will not be read again"
        assert fields["lru2"] < 0.5 * fields["lru"], "what is read once or twice never becomes old enough for LRU-2"
    for popular in ("Zipf 0.8", "Zipf 1.1", "Zipf 0.8 with scans"):
        fields = saved[popular]
        assert min(fields["lru2"], fields["gdsf"], fields["lfu"]) > fields["lru"] >= fields["fifo"] - 0.01


@pytest.mark.ledger("P3-21")
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_with_room_for_all_every_policy_finds_what_was_made(policy: str) -> None:
    """Section V: in W1, hits are a matter of placement alone."""
    for kind in ("W1", "W2", "W3"):
        trace = list(workflow(kind, 80, random.Random(1)))
        assert replay(trace, 10**15, policy)["hits"] == 1.0


def test_the_table_has_a_row_for_each_trace() -> None:
    rows: list[dict[str, object]] = [
        {
            "trace": "W1",
            "space_gb": 8,
            "policies": {name: {"hits": 0.5, "bytes": 0.5, "seconds": 0.5} for name in POLICIES},
        }
    ]
    assert "| W1 | 8 GB |" in table(rows)
