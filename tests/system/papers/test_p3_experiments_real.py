"""Paper 3, section V, at a small size with everything real: server, keeper, twelve pilots, files, and a storage element that is slow and fails."""

from __future__ import annotations

import pytest
from bench.pilots import real
from bench.pilots.real_site import REAL_ARMS

COMPUTING = 3.0
pytestmark = [pytest.mark.live, pytest.mark.measured, pytest.mark.ledger("P3-16")]


async def test_look_ahead_and_re_staging_keep_near_the_bound_and_the_simulation_foretells_it() -> None:
    one = await real.run(REAL_ARMS["look-ahead"], real.small("W3"), "d3f3", 1, COMPUTING)
    assert one.failed_accesses > 0
    # Now and then one pair does not meet: a pilot that asks in the very moment takes what another host was to have.
    assert one.storage_reads <= 1, one
    assert one.over_bound <= real.GOAL, one
    assert abs(one.off) <= real.AGREEMENT, one


async def test_without_a_cache_every_read_goes_to_storage_and_it_takes_longer() -> None:
    one = await real.run(REAL_ARMS["no cache"], real.small("W3"), "d3f3", 1, COMPUTING)
    assert one.storage_reads == one.reads == 8
    assert one.makespan > one.bound + 0.5 * 0.5 * COMPUTING
    assert abs(one.off) <= real.AGREEMENT, one
