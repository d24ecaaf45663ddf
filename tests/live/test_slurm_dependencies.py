"""Jobs that wait for one that failed and is run again, on a real Slurm: they see only how it ended at last, where Slurm lets anyone repair that."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.live.test_slurm_steering import again_soon, ended, said, sbatch
from tests.servers import address
from tests.unit.apps.server.running import until

from forestay.adapters.slurm.batch import SlurmBatch
from forestay.adapters.slurm.steering import SlurmSteering
from forestay.adapters.system.commands import SystemCommands
from forestay.domain.sites.watched_job import WatchedJobAction
from forestay.ports.errors import Transient

pytestmark = [pytest.mark.live, pytest.mark.finding("F-A2")]

RECOVERABLE = '[ "$SLURM_RESTART_COUNT" = 1 ] || exit 3'


@pytest.fixture
def steering() -> SlurmSteering:
    address("SLURM_CONF")
    return SlurmSteering(SlurmBatch(SystemCommands(), os.environ))


def submit(folder: Path, name: str, *words: str, work: str = "true") -> str:
    """A job that writes its name down whenever it starts."""
    return sbatch("--mem=10", "-o", "/dev/null", *words, "--wrap", f"echo {name} >> {folder}/starts; {work}")


def starts(folder: Path) -> list[str]:
    return (folder / "starts").read_text().split()


async def gave_up(jobs: Sequence[str]) -> None:
    async def all_of_them() -> bool:
        reasons = said("squeue", "-h", "-t", "PD", "-j", ",".join(jobs), "-o", "%r").split()
        return reasons == ["DependencyNeverSatisfied"] * len(jobs)

    await until(all_of_them, f"Slurm to give up {jobs}", 60)


async def all_done(steering: SlurmSteering, jobs: Sequence[str]) -> None:
    assert {job: await ended(steering.slurm, job) for job in jobs} == dict.fromkeys(jobs, WatchedJobAction.DONE)


async def release(steering: SlurmSteering, array: str) -> None:
    """Once the accounting has caught up."""

    async def done() -> bool:
        try:
            await steering.release_dependents(array, os.getuid())
        except Transient:
            return False
        return True

    await until(done, f"the accounting of array {array}", 60)


async def test_a_chain_of_three_runs_in_its_order(steering: SlurmSteering, tmp_path: Path) -> None:
    first = submit(tmp_path, "first", work=RECOVERABLE)
    second = submit(tmp_path, "second", f"--dependency=afterok:{first}")
    third = submit(tmp_path, "third", f"--dependency=afterok:{second}")
    await gave_up([second])
    await again_soon(steering, first, needs={}, mark="o-1")
    await all_done(steering, [first, second, third])
    assert starts(tmp_path) == ["first", "first", "second", "third"]


async def test_a_fan_of_ten_and_every_combination_waits_for_it_again(steering: SlurmSteering, tmp_path: Path) -> None:
    """With the kinds of dependency that their user gave, and only those that waited for this job."""
    first = submit(tmp_path, "first", work=RECOVERABLE)
    held = submit(tmp_path, "held", "--hold")
    other = submit(tmp_path, "other", work="exit 4")
    fan = [submit(tmp_path, "fan", f"--dependency=afterok:{first}") for _ in range(10)]
    both = submit(tmp_path, "both", f"--dependency=afterok:{first},afterany:{held}")
    either = submit(tmp_path, "either", f"--dependency=afterok:{first}?afterok:{held}")
    foreign = submit(tmp_path, "foreign", f"--dependency=afterok:{other}")
    try:
        await gave_up([*fan, both, foreign])
        await again_soon(steering, first, needs={}, mark="o-1")
        await all_done(steering, [first, *fan, either])
        assert "both" not in starts(tmp_path)
        assert f"afterany:{held}(unfulfilled)" in said("squeue", "-h", "-j", both, "-o", "%E")
        said("scontrol", "release", held)
        await all_done(steering, [held, both])
        assert starts(tmp_path).count("fan") == 10
        await gave_up([foreign])
    finally:
        said("scancel", held, foreign, both)


async def test_a_job_that_waited_for_any_end_has_run_and_does_not_run_twice(
    steering: SlurmSteering, tmp_path: Path
) -> None:
    """Slurm starts it when the first try ends: nobody can take that back."""
    first = submit(tmp_path, "first", work=RECOVERABLE)
    after = [submit(tmp_path, kind, f"--dependency={kind}:{first}") for kind in ("afterany", "afternotok")]
    await all_done(steering, after)
    await again_soon(steering, first, needs={}, mark="o-1")
    await all_done(steering, [first])
    assert sorted(starts(tmp_path)) == ["afterany", "afternotok", "first", "first"]


async def test_the_same_element_of_another_array_waits_again(steering: SlurmSteering, tmp_path: Path) -> None:
    name = "$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID"
    fails = f"case $SLURM_ARRAY_TASK_ID in 1|2) {RECOVERABLE} ;; esac"
    first = submit(tmp_path, name, "--array=0-3", work=fails)
    second = submit(tmp_path, name, "--array=0-3", f"--dependency=aftercorr:{first}")
    single = submit(tmp_path, "single", f"--dependency=afterok:{first}_2")
    try:
        await all_done(steering, [f"{second}_0", f"{second}_3"])
        await gave_up([f"{second}_1", f"{second}_2", single])
        await again_soon(steering, f"{first}_2", needs={}, mark="o-1")
        await all_done(steering, [f"{first}_2", f"{second}_2", single])
        await gave_up([f"{second}_1"])
        assert starts(tmp_path).count(f"{second}-2") == 1
    finally:
        said("scancel", second)


async def test_who_waits_for_a_whole_array_is_released_when_every_element_has_ended_well(
    steering: SlurmSteering, tmp_path: Path
) -> None:
    """Slurm keeps in mind that one of them failed, so waiting for it again is not enough."""
    name = "$SLURM_ARRAY_TASK_ID"
    first = submit(tmp_path, name, "--array=0-3", work=f"[ $SLURM_ARRAY_TASK_ID -lt 2 ] || {RECOVERABLE}")
    after = submit(tmp_path, "after", f"--dependency=afterok:{first}")
    try:
        await gave_up([after])
        for element in (f"{first}_2", f"{first}_3"):
            assert await ended(steering.slurm, element) is WatchedJobAction.FAILED
            await release(steering, first)
            await gave_up([after])
            await again_soon(steering, element, needs={}, mark="o-1")
            await all_done(steering, [element])
        await release(steering, first)
        await all_done(steering, [after])
        assert starts(tmp_path).count("after") == 1
    finally:
        said("scancel", after)
