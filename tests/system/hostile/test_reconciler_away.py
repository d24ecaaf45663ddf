"""Nobody looks for lost jobs for a long time, and then somebody does again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from tests.unit.apps.server.asks import read, submit
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until

pytestmark = pytest.mark.slow

LEASE = 3
AWAY = 10 * LEASE


async def test_a_reconciler_that_was_away_releases_what_is_lost_and_nothing_else(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    """Two pilots live on and one is frozen; the reconciler comes back after ten leases."""
    gate = tmp_path / "gate"
    async with processes(own_domain, tmp_path, lease=LEASE) as running:
        server = await running.server()
        reconciler = running.reconciler()
        ada = running.client(server, "submitter", "viewer", tenant=tenant)
        pilots = [running.pilot(tenant, server) for _ in range(3)]
        wait = f"while [ ! -e {gate} ]; do sleep 0.05; done"
        jobs = await submit(ada, *[{}] * 3, command=["sh", "-c", wait], max_attempts=3)

        async def all_run() -> bool:
            return [(await read(ada, job))["state"] for job in jobs] == ["running"] * 3

        await until(all_run, "all three to run")
        reconciler.kill()
        os.killpg(pilots[0].process.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(AWAY)
            assert await all_run(), "nobody looks"
            back = time.monotonic()
            running.reconciler()

            async def released() -> list[str]:
                return [job for job in jobs if (await read(ada, job))["releases"] > 0]

            (lost,) = await until(released, "the frozen pilot's job to be released")
            assert time.monotonic() - back >= LEASE, (
                "it is given its lease anew, for the reconciler may have been cut off"
            )
            await asyncio.to_thread(gate.touch)

            async def completed() -> bool:
                return {(await read(ada, job))["state"] for job in jobs} == {"completed"}

            await until(completed, "all three to complete")
            attempts = {job: (await read(ada, job))["attempt"] for job in jobs}
            assert attempts == {job: 1 + (job == lost) for job in jobs}
        finally:
            os.killpg(pilots[0].process.pid, signal.SIGKILL)
