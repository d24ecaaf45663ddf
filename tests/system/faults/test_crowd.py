"""What a crowd of failing jobs of one owner costs the others, with real pilots; `just faults-stores` runs it."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until

pytestmark = [pytest.mark.slow, pytest.mark.finding("F-B3")]

GOOD = 200
CROWD = 600
ROUNDS = 3
HOSTS = 4


async def test_a_crowd_of_failing_jobs_costs_others_at_most_a_tenth(
    tmp_path: Path, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The time of the same good jobs with the crowd and without it, in turns."""
    state = tmp_path / "state"
    state.mkdir()
    tenant = f"t-{uuid4().hex[:10]}"
    took: dict[bool, list[float]] = {False: [], True: []}
    async with processes(Domain(f"sqlite:///{tmp_path / 'store.db'}", state), tmp_path) as running:
        server = await running.server()
        running.reconciler()
        bob = running.client(server, "submitter", "viewer", tenant=tenant)
        eve = running.client(server, "submitter", "viewer", "operator", tenant=tenant)
        eve.headers["Authorization"] = f"Bearer {running.domain.token('submitter', tenant=tenant, subject='eve')}"
        for number in range(HOSTS):
            running.pilot(tenant, server, slots=2, host=f"n{number}")
        for number in range(1 + 2 * ROUNDS):
            crowd = number % 2 == 0
            failing: list[str] = []
            for part in range(20 if crowd and number else 0):
                command = ["sh", "-c", f"exit {1 + part}"]
                failing += await submit(eve, *({} for _ in range(CROWD // 20)), command=command)
            began = time.monotonic()
            jobs = await submit(bob, *({} for _ in range(GOOD)), command=["sleep", "0.2"])

            async def done(names: list[str] = jobs) -> bool:
                left = (
                    await bob.get("/v1/jobs", params={"owner": "ada", "state": ["available", "running"], "limit": 1})
                ).json()
                return not left["jobs"] and bool(names)

            await until(done, "the good jobs", 600)
            if number:  # the first round only shows that the hosts work
                took[crowd].append(time.monotonic() - began)
            for start in range(0, len(failing), 50):
                await asyncio.gather(
                    *(
                        eve.post(f"/v1/jobs/{job}/cancel", json={"reason": "over"})
                        for job in failing[start : start + 50]
                    )
                )
    alone, beside = statistics.median(took[False]), statistics.median(took[True])
    words = f"{GOOD} jobs took {alone:.1f} s alone and {beside:.1f} s beside {CROWD} failing ones ({beside / alone:.2f} times)"
    record_property("figures", words)
    with capsys.disabled():
        print(f"\n{words}; all: {took}")  # noqa: T201
    assert beside <= 1.1 * alone
