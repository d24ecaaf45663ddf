"""Why a real Slurm did not take a pilot: the network is down, the scheduler is down, the scheduler is up and refuses."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from uuid import uuid4

import pytest
from tests.contract.batch_rooms import found
from tests.live.own_slurm import OwnSlurm

from forestay.domain.sites.batch import PilotJob, SubmitRefusal, SubmitRefused

pytestmark = [pytest.mark.live, pytest.mark.pair]


def pilot() -> PilotJob:
    return PilotJob(f"forestay-test-{uuid4().hex[:12]}", ("true",), "/")


async def refused(slurm: OwnSlurm, job: PilotJob) -> SubmitRefused:
    answer = await slurm.batch().submit(job)
    assert isinstance(answer, SubmitRefused), answer
    return answer


@pytest.mark.ledger("P0-24")
async def test_the_network_is_down(own_slurm: OwnSlurm) -> None:
    job = pilot()
    # In a new network namespace even loopback is down: there is no way to the controller, which runs on.
    command = ["unshare", "--map-root-user", "--net", sys.executable, "-m", "tests.live.submit_once", job.name]
    done = await asyncio.to_thread(
        subprocess.run, command, env=own_slurm.environment, text=True, capture_output=True, check=True, timeout=120
    )
    assert done.stdout.strip() == SubmitRefusal.NETWORK_DOWN
    assert await found(own_slurm.batch(), [job.name]) == {}, "nothing was queued"


@pytest.mark.ledger("P0-24")
async def test_the_scheduler_is_down_until_it_is_started_again(own_slurm: OwnSlurm) -> None:
    job = pilot()
    await asyncio.to_thread(own_slurm.order, "kill9", "slurm", "ctld")
    try:
        assert (await refused(own_slurm, job)).why is SubmitRefusal.SCHEDULER_DOWN
    finally:
        await asyncio.to_thread(own_slurm.order, "launch", "slurm", "ctld")
    assert await found(own_slurm.batch(), [job.name]) == {}, "nothing was queued"
    assert isinstance(await own_slurm.batch().submit(job), str)


@pytest.mark.ledger("P0-24")
@pytest.mark.parametrize(
    "change",
    [
        {"account": "nobody-has-this"},
        {"queue": "no-such-partition"},
        {"memory": 2**50},
    ],
    ids=["account", "partition", "memory"],
)
async def test_the_scheduler_refuses_a_job_that_is_wrong(own_slurm: OwnSlurm, change: dict[str, object]) -> None:
    answer = await refused(own_slurm, replace(pilot(), **change))  # type: ignore[arg-type]
    assert (answer.why, answer.later) == (SubmitRefusal.REFUSED, False), answer


@pytest.mark.ledger("P0-24")
async def test_the_scheduler_refuses_while_its_partition_is_closed(own_slurm: OwnSlurm) -> None:
    job = pilot()
    await asyncio.to_thread(own_slurm.slurm, "scontrol", "update", "partitionname=main", "state=drain")
    try:
        answer = await refused(own_slurm, job)
        assert (answer.why, answer.later) == (SubmitRefusal.REFUSED, True), answer
    finally:
        await asyncio.to_thread(own_slurm.slurm, "scontrol", "update", "partitionname=main", "state=up")
    assert isinstance(await own_slurm.batch().submit(job), str)
