"""What users see of a failed job while the exception service or the watcher is away, on a real Slurm: never that it runs while nobody decides on it, and no
second run after they saw it fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.system.insertion.shell import Shell, incident_of, install, shell
from tests.system.shim.test_transparent import call, ended
from tests.unit.apps.server.exceptions.test_engines import add_rule
from tests.unit.apps.server.line import Line
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import RunningServer, until

from forestay.adapters.system.shim_spool import ShimSpool
from forestay.ports.exceptions.exception_service import EngineNews, EventReply, ExceptionService

pytestmark = pytest.mark.live

AGAIN: dict[str, object] = {"action": "resubmit"}
NOT_VOUCHED = "ended while no watcher was active"


@asynccontextmanager
async def line_to(server: RunningServer) -> AsyncIterator[Line]:
    """A line to the server that a test can cut."""
    parts = urlsplit(server.url)
    assert parts.hostname
    assert parts.port
    line = Line((parts.hostname, parts.port))
    listener = await asyncio.start_server(line.connected, "127.0.0.1", 0)
    line.port = listener.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        listener.close()
        await line.close()


@dataclass(slots=True)
class CutAfterReport:
    """The real service, whose line is cut as soon as it has taken a report."""

    service: ExceptionService
    line: Line
    reported: int = 0

    async def report(self, events: Sequence[Mapping[str, Any]]) -> Sequence[EventReply]:
        answers = await self.service.report(events)
        if not self.reported:
            self.line.cut()
        self.reported += 1
        return answers

    async def news(self, incidents: Collection[str], *, wait: float) -> EngineNews:
        return await self.service.news(incidents, wait=wait)

    async def answer(self, order: str, outcome: str, detail: str = "") -> None:
        await self.service.answer(order, outcome, detail)


def failing(folder: Path) -> str:
    return f"echo start >> {folder}/starts; exit 3"


async def shown(user: Shell, job: str, state: str) -> None:
    async def is_shown() -> bool:
        return await user.seen(job) == state

    await until(is_shown, f"job {job} to be shown as {state}", 60)


async def vouched(folder: Path) -> None:
    """Slurm tells the end of a job in whole seconds, so one that ends in the first second may have ended before."""

    async def is_so() -> bool:
        since = ShimSpool(folder / "spool").vouched()
        return since is not None and time.time() > since + 1

    await until(is_so, "the watcher to vouch", 60)


async def withdrawn(folder: Path) -> None:
    async def is_so() -> bool:
        return not (folder / "spool" / "watch").exists()

    await until(is_so, "the watcher to withdraw", 60)


async def explained(server: RunningServer, tenant: str, job: str) -> str:
    """Everything that is told of the incident of a job."""
    incident = await incident_of(server, tenant, job)
    return (await server.person("viewer", tenant=tenant).get(f"/v1/incidents/{incident['id']}")).text


@pytest.mark.finding("F-A4")
@pytest.mark.finding("F-A5")
async def test_a_job_that_fails_while_the_service_is_away_is_shown_as_failed_and_never_rerun(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    await add_rule(local, tenant, AGAIN, condition="true", cause="memory")
    async with line_to(local) as line, shell(tmp_path, local, tenant, url=f"http://127.0.0.1:{line.port}") as user:
        line.cut()
        await withdrawn(tmp_path)
        job = user.sbatch("--wrap", failing(tmp_path))
        await asyncio.to_thread(ended, job)
        assert await user.seen(job) == "FAILED"
        line.recover()
        assert await user.settled(job) == {"FAILED"}
        assert NOT_VOUCHED in await explained(local, tenant, job)
        assert (tmp_path / "starts").read_text() == "start\n"
        assert "Restarts=0" in user.bare("scontrol", "show", "job", job)


@pytest.mark.finding("F-A4")
@pytest.mark.finding("F-A5")
async def test_a_service_that_goes_away_after_a_report_leaves_no_job_shown_as_running(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    await add_rule(local, tenant, AGAIN, condition="true", cause="memory")
    async with line_to(local) as line, shell(tmp_path, local, tenant, url=f"http://127.0.0.1:{line.port}") as user:
        cutting = CutAfterReport(user.watcher.service, line)
        user.watcher.service = cutting
        job = user.sbatch("--wrap", failing(tmp_path))
        await asyncio.to_thread(ended, job)
        await shown(user, job, "FAILED")
        assert cutting.reported == 1
        line.recover()
        assert await user.settled(job) == {"FAILED"}
        text = await explained(local, tenant, job)
        assert NOT_VOUCHED in text
        assert (tmp_path / "starts").read_text() == "start\n"


@pytest.mark.finding("F-A5")
async def test_a_job_that_failed_before_the_watcher_started_is_an_incident_only(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    await add_rule(local, tenant, AGAIN, condition="true", cause="memory")
    install(tmp_path / "bin")
    (tmp_path / "spool" / "new").mkdir(parents=True)
    job = call(tmp_path, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", failing(tmp_path)).stdout.strip()
    assert await asyncio.to_thread(ended, job) == "FAILED"
    async with shell(tmp_path, local, tenant) as user:
        assert await user.settled(job) == {"FAILED"}
        assert NOT_VOUCHED in await explained(local, tenant, job)
        assert (tmp_path / "starts").read_text() == "start\n"


@pytest.mark.finding("F-A5")
@pytest.mark.pair
@pytest.mark.parametrize("gap", ["short", "long"])
async def test_a_watcher_that_is_killed_goes_on_only_within_the_time_it_vouched_for(
    local: RunningServer, tenant: str, tmp_path: Path, gap: str
) -> None:
    """The next one acts on what failed between them if users cannot have seen it fail, and otherwise does not."""
    await add_rule(local, tenant, AGAIN, condition="true", cause="memory")
    install(tmp_path / "bin")
    spool = tmp_path / "spool"
    (tmp_path / "logs").mkdir()
    work = f"echo start >> {tmp_path}/starts; until [ -e {tmp_path}/go ]; do sleep 0.1; done; exit $((3 - 3 * ${{SLURM_RESTART_COUNT:-0}}))"
    async with processes(local.domain, tmp_path / "logs") as running:
        server = await running.server()
        first = running.watcher(tenant, server, spool, "--act", "--every", "0.5")
        await vouched(tmp_path)
        job = call(tmp_path, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", work).stdout.strip()
        first.kill_alone()
        (tmp_path / "go").touch()
        assert await asyncio.to_thread(ended, job) == "FAILED"
        watch = spool / "watch"
        seen = call(tmp_path, "sacct", "-X", "-n", "-P", "-j", job, "-o", "State").stdout.strip()
        assert seen == "RUNNING"
        if gap == "long":  # as if so much time had passed: what it vouched for is over, and the user looks
            lines = watch.read_text().splitlines()
            watch.write_text("\n".join(["1", *lines[1:]]) + "\n")
            seen = call(tmp_path, "sacct", "-X", "-n", "-P", "-j", job, "-o", "State").stdout.strip()
            assert seen == "FAILED"
        running.watcher(tenant, server, spool, "--act", "--every", "0.5")

        async def settled() -> bool:
            return not list((spool / "new").iterdir())

        await until(settled, "the job to be settled", 120)
    starts = (tmp_path / "starts").read_text().split()
    assert len(starts) == (2 if gap == "short" else 1)
    state = call(None, "squeue", "-h", "-t", "all", "-j", job, "-o", "%T", FORESTAY_SHIM="off").stdout.strip()
    assert state == ("COMPLETED" if gap == "short" else "FAILED")
