"""Paper P3, section IV: pilots as processes of their own, on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.asks import read, submit_one
from tests.server.processes import Processes, Started, processes
from tests.server.running import Domain, until
from tests.server.store_room import only

pytestmark = [pytest.mark.alone, only("sqlite")]


@dataclass
class House:
    """A server, who asks it, and the pilots of a test."""

    running: Processes
    server: Started
    tenant: str
    person: httpx.AsyncClient

    async def secret(self, **body: Any) -> str:
        answer = await self.person.post("/v1/enrolments", json={"site": "local"} | body)
        assert answer.status_code == 201, answer.text
        made: str = answer.json()["secret"]
        return made

    def pilot(self, **options: Any) -> Started:
        return self.running.pilot(self.tenant, self.server, **options)

    async def pilots(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.person.get("/v1/pilots")).json()["pilots"]
        return found

    async def ended(self, job: str) -> dict[str, Any]:
        async def final() -> dict[str, Any] | None:
            shown = await read(self.person, job)
            return shown if shown["state"] in ("completed", "faulted", "failed") else None

        shown: dict[str, Any] = await until(final, f"the end of {job}")
        return shown

    async def gone(self, pilot: Started, patience: float = 30) -> int:
        """The exit code of a pilot that ends by itself."""

        async def over() -> bool:
            return pilot.process.poll() is not None

        await until(over, "the pilot's end", patience)
        assert pilot.process.returncode is not None
        return pilot.process.returncode

    def said(self, pilot: Started) -> str:
        """What a pilot wrote."""
        return (self.running.logs / f"pilot-{self.running.started.index(pilot)}.log").read_text()


@asynccontextmanager
async def house_of(domain: Domain, tenant: str, folder: Path) -> AsyncIterator[House]:
    async with processes(domain, folder, lease=60) as running:
        server = await running.server()
        person = running.client(server, "operator", tenant=tenant)
        yield House(running, server, tenant, person)


async def test_a_pilot_enrols_by_its_secret_and_no_payload_finds_it(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    """The file is gone before the first job runs, a second pilot with the same secret is refused, and the first goes on."""
    async with house_of(own_domain, tenant, tmp_path) as house:
        secret = await house.secret()
        first = house.pilot(secret=secret)
        job = await submit_one(house.person, command=["sh", "-c", f"grep -rs {secret} {tmp_path} && exit 1; exit 0"])
        assert (await house.ended(job))["state"] == "completed"
        second = house.pilot(secret=secret)
        assert await house.gone(second) == 2
        assert "was used, has expired, or never was" in house.said(second)
        assert first.process.poll() is None
        (known,) = await house.pilots()
        assert known["state"] == "alive"


@pytest.mark.ledger("P3-02")
async def test_a_failed_check_ends_the_pilot_and_touches_no_job(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    """Section IV: if something is missing that a job needs, the pilot announces the error and ends itself; it is never registered."""
    async with house_of(own_domain, tenant, tmp_path) as house:
        job = await submit_one(house.person)
        script = tmp_path / "own-check"
        script.write_text("#!/bin/sh\necho looking\necho the software area is not mounted >&2\nexit 7\n")
        script.chmod(0o700)
        secret = await house.secret(launch="l-1")
        options = {"secret": secret, "launch": "l-1", "check": str(script), "needs": "no-such-program"}
        pilot = house.pilot(**options, host="node9")
        assert await house.gone(pilot) == 3
        said = house.said(pilot)
        assert "this machine is not fit to run jobs: commands: not on the PATH: no-such-program" in said
        assert "site-check: own-check gave 7: the software area is not mounted" in said
        assert secret not in said
        (alert,) = (await house.person.get("/v1/alerts")).json()["alerts"]
        assert (alert["alert"], alert["host"], alert["launch"]) == ("failed-checks", "node9", "l-1")
        assert alert["checks"] == ["commands", "site-check"]
        assert await house.pilots() == []
        shown = await read(house.person, job)
        assert (shown["state"], shown["attempt"]) == ("available", 0)
        house.pilot(secret=await house.secret(), needs="sh")
        assert (await house.ended(job))["attempt"] == 1


@pytest.mark.ledger("P3-19")
async def test_a_pilots_lifetime_is_respected(own_domain: Domain, tenant: str, tmp_path: Path) -> None:
    """Section VI: a job that cannot end in the time left is not given; one that says nothing and runs too long is told to
    end in time, its end says why, and it is claimable again with no attempt of its policy spent."""
    async with house_of(own_domain, tenant, tmp_path) as house:
        long = await submit_one(house.person, resources={"wall": 3600})
        script = f"trap 'echo told; touch {tmp_path}/told; exit 0' TERM; echo begun; while :; do sleep 0.05; done"
        careless = await submit_one(house.person, {"expected_runtime": 1}, command=["sh", "-c", script], max_attempts=1)
        pilot = house.pilot(time_left="14", time_margin="7", claim_wait="1")
        assert await house.gone(pilot) == 0
        assert (tmp_path / "told").exists()
        shown = await read(house.person, careless)
        assert (shown["state"], shown["attempt"], shown["faults"]) == ("available", 1, 0)
        assert (shown["last"]["reason"], shown["last"]["error"]) == ("pilot-stopped", "time-over")
        assert (await read(house.person, long))["attempt"] == 0, "it was never given"
