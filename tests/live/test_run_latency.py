"""How long a small flow takes when nothing else happens."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.live.run_site import run_site
from tests.speed import clock_limit

pytestmark = [pytest.mark.live, pytest.mark.measured]

THREE = """
forestay: 1
name: three
tasks:
  a: {command: [echo]}
  b: {command: [echo], after: [a]}
  c: {command: [echo], after: [b]}
"""


async def test_a_chain_of_three_takes_less_than_a_second_a_task(tmp_path: Path) -> None:
    async with run_site("sqlite", tmp_path) as site:
        await site.ended(await site.start(THREE))  # connections and caches are warm then
        took = []
        for _ in range(5):
            since = time.monotonic()
            await site.ended(await site.start(THREE))
            took.append(time.monotonic() - since)
        assert sorted(took)[2] < clock_limit(3 * 1.0)
        print(f"three tasks one after the other: {sorted(took)[2]:.2f} s")  # noqa: T201
