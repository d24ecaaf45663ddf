"""Paper P4, section 4.4: time to diagnose, and completion rate, with and without the metadata and priorities. `just metadata-value` does it at full size and writes the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.system.matrix.site import FailureSite, failure_site
from tests.system.metadata.diagnosis import diagnose, records, summary
from tests.system.metadata.mixed_load import in_turns


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FailureSite]:
    async with failure_site(tmp_path_factory.mktemp("site"), free_tries="0,0") as running:
        yield running


@pytest.mark.ledger("P4-16")
async def test_there_is_less_to_read_until_a_failure_is_understood(site: FailureSite) -> None:
    some = records(each=27)
    diagnosed, seconds = await asyncio.to_thread(diagnose, site, some)
    returned_summary = summary(diagnosed, seconds)
    assert returned_summary["records"] == len(some) >= 30
    assert returned_summary["right"] >= 0.8
    # The paper says 70 % less; a reader who is pointed to the right lines gains little, and that is said.
    assert returned_summary["log"]["with"] <= 0.3 * returned_summary["log"]["without"]
    assert returned_summary["own lines"]["with"] < returned_summary["own lines"]["without"]


@pytest.mark.ledger("P4-16")
async def test_more_of_a_mixed_load_is_done_and_what_is_urgent_in_time(site: FailureSite) -> None:
    first, second = await asyncio.to_thread(in_turns, site, 24, 1)
    informed, blind = (first, second) if first.metadata else (second, first)
    assert (informed.metadata, blind.metadata) == (True, False)
    assert informed.completed == informed.wide_completed == 1.0
    assert informed.extra_attempts == 0
    assert blind.completed <= informed.completed
    assert informed.urgent_in_time >= blind.urgent_in_time + 0.5
