"""Where users call sbatch from: several login nodes, and engines that are jobs themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.system.insertion.shell import incidents, recovered, shell
from tests.unit.apps.server.exceptions.test_engines import add_rule
from tests.unit.apps.server.fixtures import local, tenant
from tests.unit.apps.server.insertion.test_watcher import GREEDY, MORE
from tests.unit.apps.server.running import RunningServer, until

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.slow]

HEAD = """#!/bin/sh
job=$(sbatch --parsable --mem=100 -o /dev/null --wrap "python3 -c '{greedy}'") || exit 9
echo "$job" >{folder}/child
while :; do
  state=$(sacct -X -n -P -j "$job" -o State)
  echo "$state" >>{folder}/states
  case $state in COMPLETED) exit 0 ;; '' | PENDING | RUNNING | REQUEUED) sleep 0.5 ;; *) exit 1 ;; esac
done
"""


async def test_an_engine_that_is_a_job_itself_sees_no_failure(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    """Its node has the shim and the spool at the same places as the login node."""
    await add_rule(local, tenant, MORE)
    (tmp_path / "head.sh").write_text(HEAD.format(greedy=GREEDY, folder=tmp_path))
    async with shell(tmp_path, local, tenant) as user:
        head = user.sbatch("head.sh")
        assert "COMPLETED" in await user.settled(head), (tmp_path / "states").read_text()
    child = (tmp_path / "child").read_text().strip()
    await recovered(local, tenant, child)
    assert set((tmp_path / "states").read_text().split()) <= {"PENDING", "RUNNING", "REQUEUED", "COMPLETED"}


async def test_two_login_nodes_share_a_spool_and_each_has_a_watcher(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    """Both look at every job; it is run again once, and neither shows a failure."""
    await add_rule(local, tenant, MORE)
    async with shell(tmp_path, local, tenant) as first, shell(tmp_path, local, tenant) as second:
        job = first.sbatch("--mem=100", "--wrap", f"python3 -c '{GREEDY}'")
        seen = await asyncio.gather(first.settled(job), second.settled(job))
        assert set().union(*seen) <= {"", "PENDING", "RUNNING", "REQUEUED", "COMPLETED"}
        assert (await first.watcher.reader.outcome([job]))[job].restarts == 1
    (found,) = await incidents(local, tenant)
    assert found["state"] == "complete"


async def test_a_login_node_with_a_spool_of_its_own_shows_what_slurm_says_of_others_jobs(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    """The job is recovered all the same; only who asks where it was not submitted sees the first end."""
    await add_rule(local, tenant, {**MORE, "wait": 5})
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    async with shell(here, local, tenant) as user, shell(there, local, tenant) as other:
        job = user.sbatch("--mem=100", "--wrap", f"python3 -c '{GREEDY}'")

        async def failed_there() -> bool:
            return await other.seen(job) in ("FAILED", "OUT_OF_MEMORY", "REQUEUED")

        watching = asyncio.create_task(user.settled(job))
        await until(failed_there, "the other login node to show the end of the first attempt", 120)
        assert await watching <= {"", "PENDING", "RUNNING", "REQUEUED", "COMPLETED"}
        assert (await user.watcher.reader.outcome([job]))[job].restarts == 1
    assert len(await incidents(local, tenant)) == 1
