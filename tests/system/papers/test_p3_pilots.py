"""Paper P3, section IV: pilots as processes of their own, on a real server."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import read, submit_one
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import only

pytestmark = [pytest.mark.pair, only("sqlite")]


@dataclass
class Scenario:
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
        pilots: list[dict[str, Any]] = (await self.person.get("/v1/pilots")).json()["pilots"]
        return pilots

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
async def default_policy_of(domain: Domain, tenant: str, folder: Path) -> AsyncIterator[Scenario]:
    async with processes(domain, folder, lease=60) as running:
        server = await running.server()
        person = running.client(server, "operator", tenant=tenant)
        yield Scenario(running, server, tenant, person)


async def test_a_pilot_enrols_by_its_secret_and_no_payload_finds_it(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    """The file is gone before the first job runs, a second pilot with the same secret is refused, and the first goes on."""
    async with default_policy_of(own_domain, tenant, tmp_path) as scenario:
        secret = await scenario.secret()
        first = scenario.pilot(secret=secret)
        job = await submit_one(scenario.person, command=["sh", "-c", f"grep -rs {secret} {tmp_path} && exit 1; exit 0"])
        assert (await scenario.ended(job))["state"] == "completed"
        second = scenario.pilot(secret=secret)
        assert await scenario.gone(second) == 2
        assert "used, expired or unknown" in scenario.said(second)
        assert first.process.poll() is None
        (known,) = await scenario.pilots()
        assert known["state"] == "alive"


@pytest.mark.ledger("P3-02")
async def test_a_failed_check_ends_the_pilot_and_touches_no_job(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    """Section IV: if something is missing that a job needs, the pilot announces the error and ends itself; it is never registered."""
    async with default_policy_of(own_domain, tenant, tmp_path) as scenario:
        job = await submit_one(scenario.person)
        script = tmp_path / "own-check"
        script.write_text("#!/bin/sh\necho looking\necho the software area is not mounted >&2\nexit 7\n")
        script.chmod(0o700)
        secret = await scenario.secret(launch="l-1")
        options = {"secret": secret, "launch": "l-1", "check": str(script), "needs": "no-such-program"}
        pilot = scenario.pilot(**options, host="node9")
        assert await scenario.gone(pilot) == 3
        text = scenario.said(pilot)
        assert "this machine is unfit to run jobs: commands: not on the PATH: no-such-program" in text
        assert "site-check: own-check gave 7: the software area is not mounted" in text
        assert secret not in text
        (alert,) = (await scenario.person.get("/v1/alerts")).json()["alerts"]
        assert (alert["alert"], alert["host"], alert["launch"]) == ("failed-checks", "node9", "l-1")
        assert alert["checks"] == ["commands", "site-check"]
        assert await scenario.pilots() == []
        shown = await read(scenario.person, job)
        assert (shown["state"], shown["attempt"]) == ("available", 0)
        scenario.pilot(secret=await scenario.secret(), needs="sh")
        assert (await scenario.ended(job))["attempt"] == 1


@pytest.mark.ledger("P3-19")
async def test_a_pilots_lifetime_is_respected(own_domain: Domain, tenant: str, tmp_path: Path) -> None:
    """Section VI: a job that cannot end in the time left is not given; one that says nothing and runs too long is told to
    end in time, its end says why, and it is claimable again with no attempt of its policy spent."""
    async with default_policy_of(own_domain, tenant, tmp_path) as scenario:
        long = await submit_one(scenario.person, resources={"wall": 3600})
        script = f"trap 'echo told; touch {tmp_path}/told; exit 0' TERM; echo begun; while :; do sleep 0.05; done"
        careless = await submit_one(
            scenario.person, {"expected_runtime": 1}, command=["sh", "-c", script], max_attempts=1
        )
        pilot = scenario.pilot(time_left="14", time_margin="7", claim_wait="1")
        assert await scenario.gone(pilot) == 0
        assert (tmp_path / "told").exists()
        shown = await read(scenario.person, careless)
        assert (shown["state"], shown["attempt"], shown["failures"]) == ("available", 1, 0)
        assert (shown["last"]["reason"], shown["last"]["error"]) == ("pilot-stopped", "time-over")
        assert (await read(scenario.person, long))["attempt"] == 0, "it was never given"


def descendants(pid: int) -> list[int]:
    """A process and all that it started."""
    words = [pid]
    for word in words:
        for task in Path(f"/proc/{word}/task").iterdir():
            words += [int(word) for word in (task / "children").read_text().split()]
    return words


def listening(pids: list[int]) -> list[str]:
    """The sockets on which these processes wait for others: TCP that listens, and any UDP that is bound."""
    own = set()
    for pid in pids:
        for opened in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(opened) if opened.is_symlink() else ""
            if target.startswith("socket:["):
                own.add(target[len("socket:[") : -1])
    lines = []
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            listens = fields[3] == "0A" if kind.startswith("tcp") else True
            if listens and fields[9] in own:
                lines.append(f"{kind} {fields[1]}")
    return lines


@pytest.mark.ledger("P3-01")
async def test_pilots_pull_and_no_port_is_open_at_the_site(own_domain: Domain, tenant: str, tmp_path: Path) -> None:
    """Section IV: sites are reluctant to open ports; the pilots are clients. While one runs a job, neither it nor anything it
    started listens anywhere; the server does, so the looking finds what is there."""
    async with default_policy_of(own_domain, tenant, tmp_path) as scenario:
        pilot = scenario.pilot(secret=await scenario.secret(), slots=2)
        job = await submit_one(
            scenario.person,
            command=["sh", "-c", f"touch {tmp_path}/begun; until [ -e {tmp_path}/go ]; do sleep 0.02; done"],
        )

        async def begun() -> bool:
            return (tmp_path / "begun").exists()

        await until(begun, "the job to begin")
        family = descendants(pilot.process.pid)
        assert len(family) >= 3, "the pilot, its guard and the payload"
        assert listening(family) == []
        assert listening([scenario.server.process.pid]) != []
        (tmp_path / "go").touch()
        assert (await scenario.ended(job))["state"] == "completed"


@pytest.mark.ledger("P3-03")
async def test_a_pilot_runs_one_job_at_a_time_and_shows_it(own_domain: Domain, tenant: str, tmp_path: Path) -> None:
    """Section IV-A: one real job at a time; idle while it has none, busy while it has one."""
    async with default_policy_of(own_domain, tenant, tmp_path) as scenario:
        scenario.pilot(secret=await scenario.secret())

        async def activity(wanted: str) -> bool:
            return [pilot["activity"] for pilot in await scenario.pilots()] == [wanted]

        await until(lambda: activity("idle"), "an idle pilot")
        script = (
            f"mkdir {tmp_path}/alone || exit 9; until [ -e {tmp_path}/go ]; do sleep 0.02; done; rmdir {tmp_path}/alone"
        )
        jobs = [await submit_one(scenario.person, command=["sh", "-c", script]) for _ in range(3)]
        await until(lambda: activity("busy"), "a busy pilot")
        states = sorted([(await read(scenario.person, job))["state"] for job in jobs])
        assert states == ["available", "available", "running"]
        (tmp_path / "go").touch()
        for job in jobs:
            assert (await scenario.ended(job))["state"] == "completed", "no two ran beside each other"
        await until(lambda: activity("idle"), "an idle pilot again")


@pytest.mark.ledger("P3-13")
async def test_completion_is_told_at_once(own_domain: Domain, tenant: str, tmp_path: Path) -> None:
    """Section I: a batch system's own word on a job's end comes by polling, here the pilot tells it. The lease is a minute and
    heartbeats come every twenty seconds, so nothing but the pilot's own word can bring an end within seconds of the exit."""
    async with default_policy_of(own_domain, tenant, tmp_path) as scenario:
        scenario.pilot(secret=await scenario.secret())
        warm = await submit_one(scenario.person)
        await scenario.ended(warm)
        delays = []
        for place in range(5):
            script = f"date +%s.%N > {tmp_path}/{place}"
            job = await submit_one(scenario.person, command=["sh", "-c", script])
            await scenario.ended(job)
            delays.append(time.time() - float((tmp_path / str(place)).read_text()))
        assert sorted(delays)[2] < 3.0, delays


@pytest.mark.parametrize("how", ["signal", "order"])
async def test_a_draining_pilot_ends_what_it_runs_and_takes_nothing_more(
    own_domain: Domain, tenant: str, tmp_path: Path, how: str
) -> None:
    async with default_policy_of(own_domain, tenant, tmp_path) as scenario:
        pilot = scenario.pilot(secret=await scenario.secret())
        script = f"touch {tmp_path}/begun; until [ -e {tmp_path}/go ]; do sleep 0.02; done"
        running = await submit_one(scenario.person, command=["sh", "-c", script])

        async def begun() -> bool:
            return (tmp_path / "begun").exists()

        await until(begun, "the job to begin")
        waiting = await submit_one(scenario.person)
        if how == "signal":
            pilot.process.send_signal(signal.SIGTERM)
        else:
            response = await scenario.person.post("/v1/pilots/drain", json={"host": "node5", "reason": "a disk"})
            assert response.json() == {"pilots": []}
            (known,) = await scenario.pilots()
            response = await scenario.person.post(
                "/v1/pilots/drain", json={"pilots": [known["id"]], "reason": "a disk"}
            )
            assert response.status_code == 200, response.text

        async def draining() -> bool:
            return "draining" in scenario.said(pilot)

        await until(draining, "the pilot to drain")
        (tmp_path / "go").touch()
        assert await scenario.gone(pilot) == 0
        assert (await read(scenario.person, running))["state"] == "completed"
        shown = await read(scenario.person, waiting)
        assert (shown["state"], shown["attempt"]) == ("available", 0)
        (known,) = await scenario.pilots()
        assert (known["state"], known["note"]) == ("gone", "it deregistered")
