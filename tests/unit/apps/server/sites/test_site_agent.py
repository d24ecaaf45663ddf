"""A site agent against a real server: killed between any two steps it submits nothing twice, and while the scheduler is away it concludes nothing."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.named_batch import Killed, NamedBatch
from tests.unit.apps.server.running import RunningServer

from forestay.adapters.httpx.site_api import HttpxSiteApi
from forestay.adapters.system.clock import RandomIds
from forestay.adapters.system.pilot_spool import FolderPilotSpool
from forestay.domain.jobs.resources import Resources
from forestay.domain.sites.batch import FORGOTTEN, BatchState, PilotJob
from forestay.domain.sites.fleet import PilotSize, SubmissionPace, Thresholds
from forestay.domain.sites.launch import LaunchState
from forestay.ports.errors import Conflict, Permanent
from forestay.services.sites.site_agent import SiteAgent
from forestay.services.sites.site_policy import SitePolicy

SEEDS = int(os.environ.get("FORESTAY_SITE_SEEDS", "6"))
SMALL = PilotSize("small", Resources(cpus=1, memory=1 << 30, disk=1 << 40, wall=3600))
POLICY = SitePolicy(Thresholds(max_pilots=4), (SMALL,), settle=0.2)
GREETING = {
    "agent": "a-1",
    "host": "login1",
    "batch": "slurm",
    "sizes": [{"name": "small", "slots": 1, "cpus": 1, "memory": 1 << 30, "disk": 1 << 40, "gpus": 0, "wall": 3600}],
}


class OwnClock:
    """An agent's clock that a test moves."""

    def __init__(self) -> None:
        self.steady = 100_000.0

    def now(self) -> int:
        return int(self.steady * 1000)

    def monotonic(self) -> float:
        return self.steady


def pilot_job(launch: str, size: str, secret: str) -> PilotJob:
    assert size == "small"
    text = Path(secret)
    assert text.stat().st_mode & 0o777 == 0o600
    job = PilotJob(name=f"forestay-{launch}", command=("pilot", "--enrolment-file", secret), directory="/")
    assert text.read_text() not in str(job.command)
    return job


class Site:
    """One site and its agents, one after the other."""

    def __init__(self, server: RunningServer, tenant: str, folder: Path, policy: SitePolicy = POLICY) -> None:
        self.server = server
        self.tenant = tenant
        self.folder = folder
        self.policy = policy
        self.batch = NamedBatch()
        self.clock = OwnClock()
        self.user = server.person("submitter", tenant=tenant)
        token = folder / "token"
        token.write_text(server.domain.token("site", tenant=tenant))
        self.api = HttpxSiteApi(["http://127.0.0.1:9", server.url], site="hall", token_file=token)

    @asynccontextmanager
    async def agent(self, passed: Callable[[str], None] = lambda _point: None) -> AsyncIterator[SiteAgent]:
        """An agent as a process that starts: it knows nothing but its spool."""
        spool = FolderPilotSpool(self.folder / "spool")
        try:
            yield SiteAgent(
                self.api,
                submitter=self.batch,
                reader=self.batch,
                spool=spool,
                clock=self.clock,
                ids=RandomIds(),
                policy=self.policy,
                pilot_job=pilot_job,
                greeting=GREETING,
                passed=passed,
            )
        finally:
            spool.close()

    async def launches(self) -> Counter[str]:
        return Counter(launch.state.value for launch in (await self.api.demand()).launches)


@pytest.fixture
async def site(local: RunningServer, tenant: str, tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(local, tenant, tmp_path)
    yield made
    await made.api.close()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_killed_between_any_two_steps_it_submits_nothing_twice(site: Site, seed: int) -> None:
    dice = random.Random(seed)
    tasks = dice.randint(1, 6)
    await submit(site.user, *[{}] * tasks, resources={"cpus": 1})
    kills = dice.randint(1, 8)
    points: set[str] = set()

    def passed(point: str) -> None:
        nonlocal kills
        points.add(point)
        if kills and dice.random() < 0.25:
            kills -= 1
            raise Killed

    def breaks() -> str:
        nonlocal kills
        how = dice.choice(["", "", "before", "after", "late", "unsure"]) if kills else ""
        kills -= bool(how)
        return how

    site.batch.breaks = breaks
    for _ in range(60):
        try:
            async with site.agent(passed) as agent:
                for _ in range(dice.randint(1, 3)):
                    await agent.look()
                    assert len(site.batch.alive) <= POLICY.thresholds.max_pilots
                    site.clock.steady += 30
        except Killed:
            pass
        await asyncio.sleep(dice.choice([0.0, 0.1, 0.25]))
        if not kills and await site.launches() == {"submitted": min(4, tasks)}:
            break
    names = Counter(job.name for job in site.batch.jobs.values())
    assert max(names.values()) == 1, names
    assert len(names) == min(4, tasks)
    assert await site.launches() == {"submitted": min(4, tasks)}
    batch_jobs = {launch.name: launch.batch_job for launch in (await site.api.demand()).launches}
    assert batch_jobs == {job.name: job.id for job in site.batch.jobs.values()}
    assert {"greeted", "measured", "planned"} <= points


async def test_a_scheduler_that_is_away_is_asked_ever_less_and_nothing_is_concluded(site: Site) -> None:
    await submit(site.user, {}, {}, resources={"cpus": 1})
    async with site.agent() as agent:
        await agent.look()
        assert len(site.batch.jobs) == 2
        site.batch.down = True
        await submit(site.user, {}, {}, resources={"cpus": 1})
        site.server.services.demand._queues.clear()
        asked, questions = site.batch.asked, site.batch.questions
        for _ in range(120):
            await agent.look()
            site.clock.steady += 30
        assert site.batch.asked == asked, "who does not answer questions is not given work"
        assert site.batch.questions - questions <= 20, "an hour's outage costs a handful of questions"
        assert await site.launches() == {"submitted": 2}, "no launch ended, none was piled up"
        assert "scheduler-down" in agent.trouble or "does not respond" in agent.trouble
        site.batch.down = False
        site.clock.steady += 400
        for _ in range(4):
            await agent.look()
            site.clock.steady += 400
        assert agent.trouble == ""
        assert await site.launches() == {"submitted": 4}
        assert len(site.batch.jobs) == 4


async def test_a_scheduler_that_refuses_is_not_stormed(site: Site) -> None:
    await submit(site.user, *[{}] * 4, resources={"cpus": 1})
    site.batch.refuses = "Invalid account"
    async with site.agent() as agent:
        for _ in range(120):
            await agent.look()
            site.clock.steady += 30
    assert site.batch.asked <= 9, "one try, then one after 30 s, 60 s, 120 s, ..."
    async with site.agent() as another:
        for _ in range(10):
            await another.look()
        assert site.batch.asked <= 10, "one that starts anew reads the waits from the launches"
    ended = await site.api.ended()
    assert {launch.word for launch in ended} <= {"refused", "given up"}
    assert await site.launches() == {}


async def test_the_batch_systems_word_is_told_and_its_silence_is_not(site: Site) -> None:
    await submit(site.user, {}, {}, {}, resources={"cpus": 1})
    async with site.agent() as agent:
        await agent.look()
        first, second, third = site.batch.jobs
        site.batch.become(first, BatchState.ENDED, "FAILED", exit_code=2, nodes=("n1",))
        site.batch.become(second, BatchState.LOST, "NODE_FAIL", node_events=("n2: DOWN",))
        site.batch.become(third, BatchState.UNKNOWN, "")
        launch = next(
            seen_launch for seen_launch in (await site.api.demand()).launches if seen_launch.batch_job == first
        )
        (site.folder / "spool/logs" / f"{launch.id}.log").write_text("forestay-pilot: no space\n")
        await agent.look()
    answer = await site.server.person("operator", tenant=await _tenant(site)).get("/v1/sites/hall")
    ends = {entry["batch_job"]: entry["end"] for entry in answer.json()["ended"]}
    assert ends.keys() == {first, second}
    assert (ends[first]["word"], ends[first]["exit_code"], ends[first]["nodes"]) == ("FAILED", 2, ["n1"])
    assert "no space" in ends[first]["reason"]
    assert (ends[second]["lost"], ends[second]["reason"]) == (True, "n2: DOWN")
    assert (await site.launches())[LaunchState.SUBMITTED.value] == 1


async def _tenant(site: Site) -> str:
    token = (site.folder / "token").read_text()
    return site.server.services.components.identity.verify(token).tenant


async def test_pilots_that_no_job_needs_any_more_are_not_sent_after_an_outage(site: Site) -> None:
    jobs = await submit(site.user, {}, {}, resources={"cpus": 1})
    site.batch.down = True
    async with site.agent() as agent:
        for _ in range(60):
            await agent.look()
            site.clock.steady += 60
        assert site.batch.asked <= 18, "an hour's outage costs a handful of tries"
        assert await site.launches() == {"planned": 2}, "none was piled up"
        for job in jobs:
            await site.user.post(f"/v1/jobs/{job}/cancel", json={"reason": "not wanted"})
        site.server.services.demand._queues.clear()
        site.batch.down = False
        site.clock.steady += 600
        await agent.look()
    assert site.batch.jobs == {}
    assert await site.launches() == {}


async def test_what_came_twice_after_all_is_cancelled(site: Site) -> None:
    await submit(site.user, {}, resources={"cpus": 1})
    site.batch.breaks = lambda: "late"
    site.batch.arrival = asyncio.Event()
    with pytest.raises(Killed):
        async with site.agent() as agent:
            await agent.look()
    await asyncio.sleep(0.25)
    site.batch.breaks = lambda: "after"  # settled, looked for and not found: submitted once more, and killed again
    with pytest.raises(Killed):
        async with site.agent() as agent:
            await agent.look()
    site.batch.arrival.set()
    await asyncio.gather(*site.batch.late)
    assert len(site.batch.alive) == 2
    async with site.agent() as agent:
        await agent.look()
    (left,) = site.batch.alive
    assert [launch.batch_job for launch in (await site.api.demand()).launches] == [left.id]


async def test_two_agents_are_kept_apart(site: Site) -> None:
    async with site.agent() as agent:
        await agent.look()
        with pytest.raises(Permanent, match="another site agent uses the spool"):
            FolderPilotSpool(site.folder / "spool")
        agent.greeting = {**GREETING, "agent": "a-2"}
        with pytest.raises(Conflict, match="another agent manages site hall"):
            await agent.look()


async def test_idle_pilots_are_kept(site: Site) -> None:
    wanted = SitePolicy(Thresholds(max_pilots=9, min_pilots=3, min_idle=2), (SMALL,), pace=SubmissionPace(), settle=0.2)
    site.policy = wanted
    async with site.agent() as agent:
        for _ in range(3):
            await agent.look()
    assert len(site.batch.jobs) == 3
    body: dict[str, Any] = (await site.server.person("viewer", tenant=await _tenant(site)).get("/v1/sites/hall")).json()
    assert (body["said"]["min_idle"], body["demand"]["pilots"]["inactive"]) == (2, 3)


async def test_what_the_scheduler_forgot_is_lost_after_a_while_and_the_rest_goes_on(site: Site) -> None:
    """A slurmctld that is killed forgets what it took in its last seconds, and so does its accounting."""
    await submit(site.user, {}, resources={"cpus": 1})
    async with site.agent() as agent:
        await agent.look()
        (first,) = site.batch.jobs
        site.batch.become(first, BatchState.UNKNOWN, "", reason=FORGOTTEN.reason)
        await agent.look()
        assert agent.trouble == "", "it answers"
        assert await site.launches() == {"submitted": 1}, "not at first sight"
        site.clock.steady += POLICY.settle + 1
        await agent.look()
        (ended,) = await site.api.ended()
        assert ended.word == "FORGOTTEN"


async def test_the_batch_job_of_a_silent_pilot_is_cancelled_until_it_is_over(site: Site) -> None:
    await submit(site.user, {}, {}, resources={"cpus": 1})
    async with site.agent() as agent:
        await agent.look()
        doomed, kept = site.batch.jobs
        for job in (doomed, kept):
            site.batch.become(job, BatchState.RUNNING, "RUNNING")
        keep = site.server.services.launches
        (launch,) = [
            seen_launch for seen_launch in (await site.api.demand()).launches if seen_launch.batch_job == doomed
        ]
        known = await keep.get(site.tenant, "hall", launch.id)
        assert known is not None
        await keep.cancel(known)
        await agent.look()
        assert [job.id for job in site.batch.alive] == [kept]
        await agent.look()
        (ended,) = await site.api.ended()
        assert ended.batch_job == doomed
