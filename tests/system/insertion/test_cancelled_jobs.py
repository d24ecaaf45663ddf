"""Users who cancel a failed job that is shown as running, with a watcher at work on a real Slurm: it never runs again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.system.insertion.shell import Shell, shell
from tests.unit.apps.server.exceptions.test_engines import add_rule
from tests.unit.apps.server.fixtures import local, tenant
from tests.unit.apps.server.running import RunningServer, until

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.pair]


@pytest.fixture
async def user(local: RunningServer, tenant: str, tmp_path: Path) -> AsyncIterator[Shell]:
    await add_rule(local, tenant, {"action": "resubmit"}, condition="true", cause="memory")
    async with shell(tmp_path, local, tenant) as user:
        yield user


async def failed(user: Shell, *jobs: str) -> None:
    async def all_of_them() -> bool:
        ids = ",".join(jobs)
        states = await asyncio.to_thread(user.bare, "squeue", "-h", "--array", "-t", "all", "-j", ids, "-o", "%T")
        return not set(states.split()) & {"PENDING", "RUNNING", "COMPLETING"}

    await until(all_of_them, f"{jobs} to fail", 90)


async def unwatched(user: Shell) -> None:
    await until(lambda: asyncio.to_thread(lambda: not user.watcher.spool.jobs()), "every job to be settled", 120)


def starts(user: Shell) -> list[str]:
    return sorted((user.folder / "starts").read_text().split())


@pytest.mark.parametrize("by_name", [False, True])
async def test_the_moment_does_not_matter(user: Shell, tenant: str, by_name: bool) -> None:
    """Before the watcher sees the failure, while it is decided on, and while the job waits to run again."""
    name = f"cancelled-{tenant}"  # others use this Slurm too
    for wait in (0, 0.3, 0.8, 1.5):
        job = user.sbatch("--mem=10", "-J", name, "--wrap", f"echo start >> {user.folder}/starts; exit 3")
        await failed(user, job)
        await asyncio.sleep(wait)  # a moment like any other: nothing depends on which it is
        user.call("scancel", *(("--me", "--name", name) if by_name else (job,)))
        begun = len(starts(user))
        await unwatched(user)
        assert user.bare("squeue", "-h", "-t", "all", "-j", job, "-o", "%T") in ("FAILED", "CANCELLED")
        assert len(starts(user)) == begun, "it started after its user had cancelled it"


async def test_one_element_of_an_array_is_cancelled_and_its_neighbour_recovered(user: Shell) -> None:
    work = f'echo $SLURM_ARRAY_TASK_ID >> {user.folder}/starts; [ "$SLURM_RESTART_COUNT" = 1 ] || exit 3'
    array = user.sbatch("--mem=10", "--array=1-2", "--wrap", work)
    await failed(user, array)
    user.call("scancel", f"{array}_1")
    await unwatched(user)
    assert starts(user) == ["1", "2", "2"]


async def test_a_whole_array_is_cancelled(user: Shell) -> None:
    array = user.sbatch("--mem=10", "--array=1-3", "--wrap", f"echo start >> {user.folder}/starts; exit 3")
    await failed(user, array)
    user.call("scancel", array)
    begun = len(starts(user))
    await unwatched(user)
    assert len(starts(user)) == begun
