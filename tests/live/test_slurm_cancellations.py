"""What people do to a job by Slurm's own commands while it is being recovered, on a real Slurm: it stays as they want it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.live.test_slurm_dependencies import RECOVERABLE, gave_up, starts, submit
from tests.live.test_slurm_steering import again_soon, ended, said, sbatch
from tests.servers import address
from tests.unit.apps.server.running import until

from forestay.adapters.slurm.batch import SlurmBatch
from forestay.adapters.slurm.steering import SlurmSteering
from forestay.adapters.system.commands import SystemCommands
from forestay.domain.sites.watched_job import WatchedJobAction
from forestay.ports.errors import Permanent, Transient

pytestmark = pytest.mark.live

FAILS = ("--mem=10", "-o", "/dev/null", "--wrap", 'exit "$((3 - 3 * ${SLURM_RESTART_COUNT:-0}))"')


@pytest.fixture
def steering() -> SlurmSteering:
    address("SLURM_CONF")
    return SlurmSteering(SlurmBatch(SystemCommands(), os.environ))


def state(job: str) -> str:
    return said("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")


async def failed(steering: SlurmSteering, *words: str) -> str:
    job = sbatch(*words, *FAILS)
    assert await ended(steering.slurm, job) is WatchedJobAction.FAILED
    return job


async def test_slurm_says_nothing_of_the_cancellation_of_a_job_that_has_ended(steering: SlurmSteering) -> None:
    """Which is why the shim records it."""
    job = await failed(steering)
    said("scancel", job)
    assert state(job) == "FAILED"
    with pytest.raises(Permanent, match="cancelled"):
        await steering.again(job, needs={}, wait=0, mark="o-1", cancelled=lambda: True)
    assert state(job) == "CANCELLED"
    with pytest.raises(Permanent, match="cancelled"):
        await steering.hold(job)


async def test_a_job_that_is_cancelled_while_it_is_being_held_is_not_left_there(steering: SlurmSteering) -> None:
    job = await failed(steering)
    with pytest.raises(Permanent, match="cancelled"):
        await steering.hold(job, cancelled=lambda: True)
    assert state(job) == "CANCELLED"


@pytest.mark.parametrize("held", [True, False])
async def test_a_job_that_is_cancelled_while_it_waits_to_run_again(steering: SlurmSteering, held: bool) -> None:
    """Slurm itself obeys; nobody brings it back."""
    job = await failed(steering)
    if held:
        await steering.hold(job)
    else:
        await steering.again(job, needs={}, wait=600, mark="o-1")
    assert state(job) == "PENDING"
    said("scancel", job)
    for order in (steering.again(job, needs={}, wait=0, mark="o-1"), steering.again(job, needs={}, wait=0, mark="o-2")):
        with pytest.raises(Permanent, match="cancelled"):
            await order
    assert state(job) == "CANCELLED"


@pytest.mark.parametrize("whole", [True, False])
async def test_an_element_that_is_cancelled_while_it_waits_to_run_again(steering: SlurmSteering, whole: bool) -> None:
    array = sbatch("--array=1-2", "--mem=10", "-o", "/dev/null", "--wrap", "exit 3")
    elements = [f"{array}_{k}" for k in (1, 2)]
    for job in elements:
        assert await ended(steering.slurm, job) is WatchedJobAction.FAILED
        await hold_soon(steering, job)
    said("scancel", array if whole else elements[0])
    assert state(elements[0]) == "CANCELLED"
    assert state(elements[1]) == ("CANCELLED" if whole else "PENDING")
    with pytest.raises(Permanent, match="cancelled"):
        await steering.again(elements[0], needs={}, wait=0, mark="o-1")
    said("scancel", array)


async def hold_soon(steering: SlurmSteering, job: str) -> None:
    async def done() -> bool:
        try:
            await steering.hold(job)
        except Transient:
            return False
        return True

    await until(done, f"job {job} to be held", 60)


async def test_a_cancelled_job_whose_node_has_not_tidied_up_yet_is_not_brought_back(steering: SlurmSteering) -> None:
    """Slurm calls it COMPLETING, and would queue it again."""
    job = sbatch("--mem=10", "-o", "/dev/null", "--wrap", "trap '' TERM; while :; do sleep 0.1; done")
    await until(lambda: asyncio.to_thread(lambda: state(job) == "RUNNING"), "the job to run", 60)
    await asyncio.sleep(1)  # the trap is set
    said("scancel", job)
    assert state(job) == "COMPLETING"
    with pytest.raises(Transient):
        await steering.hold(job)
    with pytest.raises(Transient):
        await steering.again(job, needs={}, wait=0, mark="o-1")
    assert await ended(steering.slurm, job) is WatchedJobAction.DONE
    assert state(job) == "CANCELLED"


@dataclass(frozen=True, slots=True)
class CancelsMeanwhile(SlurmSteering):
    """The real one; a user cancels a dependent after it was listed."""

    dependent: str = ""

    async def _dependents(self, owner: int) -> list[tuple[str, str]]:
        listed = await SlurmSteering._dependents(self, owner)
        said("scancel", self.dependent)
        return listed


async def test_a_dependent_that_is_cancelled_is_not_repaired_and_the_others_are(
    steering: SlurmSteering, tmp_path: Path
) -> None:
    first = submit(tmp_path, "first", work=RECOVERABLE)
    dependents = [submit(tmp_path, f"after-{k}", f"--dependency=afterok:{first}") for k in range(3)]
    await gave_up(dependents)
    await again_soon(CancelsMeanwhile(steering.slurm, dependents[1]), first, needs={}, mark="o-1")
    for job in (first, dependents[0], dependents[2]):
        assert await ended(steering.slurm, job) is WatchedJobAction.DONE
    assert state(dependents[1]) == "CANCELLED"
    assert sorted(starts(tmp_path)) == ["after-0", "after-2", "first", "first"]


async def test_a_job_that_its_user_holds_stays_held(steering: SlurmSteering) -> None:
    """While it waits to run again; a hold of ours is another matter."""
    job = await failed(steering)
    await steering.again(job, needs={}, wait=600, mark="o-1")
    said("scontrol", "hold", job)
    for mark in ("o-1", "o-2"):
        with pytest.raises(Permanent, match="somebody holds the job"):
            await steering.again(job, needs={}, wait=0, mark=mark)
    assert (await steering.details([job]))[job].held
    said("scontrol", "release", job)
    await steering.hold(job)
    assert (await steering.details([job]))[job].held
    await steering.again(job, needs={}, wait=0, mark="o-3")
    assert await ended(steering.slurm, job) is WatchedJobAction.DONE
