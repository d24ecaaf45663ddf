"""What a real Slurm can be made to do with a user's job under the id it has."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.servers import address
from tests.unit.apps.server.running import until

from forestay.adapters.slurm.batch import SlurmBatch
from forestay.adapters.slurm.steering import SlurmSteering, read_accounted_identities
from forestay.adapters.system.commands import SystemCommands
from forestay.domain.sites.batch import BatchState
from forestay.domain.sites.watched_job import JobIdentity, JobKind, WatchedJobAction, fate
from forestay.ports.errors import Permanent

pytestmark = pytest.mark.live

MIB = 1 << 20
MOVING = re.compile(r"\b(RunTime|LastSchedEval|Scheduler|AccrueTime)=\S*")


@pytest.fixture
def slurm() -> SlurmBatch:
    address("SLURM_CONF")
    return SlurmBatch(SystemCommands(), os.environ)


@pytest.fixture
def steering(slurm: SlurmBatch) -> SlurmSteering:
    return SlurmSteering(slurm)


def said(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def sbatch(*words: str) -> str:
    return said("sbatch", "--parsable", *words)


async def ended(slurm: SlurmBatch, job: str) -> WatchedJobAction:
    async def over() -> bool:
        return fate((await slurm.outcome([job]))[job]) in (WatchedJobAction.DONE, WatchedJobAction.FAILED)

    await until(over, f"the end of job {job}", 90)
    return fate((await slurm.outcome([job]))[job])


async def test_a_job_runs_once_more_under_its_id_with_more(
    slurm: SlurmBatch, steering: SlurmSteering, tmp_path: object
) -> None:
    """It was submitted so that Slurm would not run it again; that is lifted while it runs."""
    job = sbatch(
        "--no-requeue", "--mem=50", "--time=5", "--comment=mine", "-J", "align reads", "-o", f"{tmp_path}/out",
        "--wrap", 'echo "$SLURM_RESTART_COUNT"; sleep 1; [ "$SLURM_RESTART_COUNT" = 1 ]',
    )  # fmt: skip
    await steering.allow_again([job])
    assert await ended(slurm, job) is WatchedJobAction.FAILED
    known = (await steering.details([job]))[job]
    assert (known.name, known.held, known.mark) == ("align reads", False, "")
    assert known.needs == {"cpus": 1, "memory": 50 * MIB, "wall": 300}
    assert known.logs == (f"{tmp_path}/out",)
    await steering.again(job, needs={"memory": 80 * MIB, "wall": 600}, wait=0, mark="o-1")
    assert (await slurm.outcome([job]))[job].state in (BatchState.WAITING, BatchState.RUNNING)
    again = (await steering.details([job]))[job]
    assert (again.needs["memory"], again.needs["wall"], again.mark) == (80 * MIB, 600, "o-1")
    # Whoever repeats it does nothing more.
    await steering.again(job, needs={"memory": 90 * MIB}, wait=0, mark="o-1")
    assert await ended(slurm, job) is WatchedJobAction.DONE
    assert (await slurm.outcome([job]))[job].restarts == 1
    assert "Comment=mine forestay:o-1" in said("scontrol", "show", "job", job)


async def test_a_node_takes_the_start_after_the_end_of_the_one_before(
    slurm: SlurmBatch, steering: SlurmSteering
) -> None:
    """A node refuses a start in the second in which the one before ended there, and Slurm then tells a failure of a job that it did not run."""
    work = ("--nodelist=n3", "--mem=50", "-o", "/dev/null", "--wrap", 'exit "$((3 - 3 * ${SLURM_RESTART_COUNT:-0}))"')
    for job in [sbatch(*work) for _ in range(4)]:
        assert await ended(slurm, job) is WatchedJobAction.FAILED
        first = (await slurm.outcome([job]))[job]
        await steering.again(job, needs={}, wait=0, mark="o")
        assert await ended(slurm, job) is WatchedJobAction.DONE
        second = (await slurm.outcome([job]))[job]
        assert first.ended is not None
        assert second.started is not None
        assert second.started >= first.ended + 2


async def test_a_job_is_held_and_let_go(slurm: SlurmBatch, steering: SlurmSteering) -> None:
    job = sbatch("-o", "/dev/null", "--wrap", 'exit "$((3 - 3 * ${SLURM_RESTART_COUNT:-0}))"')
    assert await ended(slurm, job) is WatchedJobAction.FAILED
    await steering.hold(job)
    await steering.hold(job)
    assert (await steering.details([job]))[job].held
    # Killed between the change and letting it go: the mark stands, and it is still held.
    said("scontrol", "update", f"JobId={job}", "Comment=forestay:o-2", "StartTime=now")
    await steering.again(job, needs={}, wait=0, mark="o-2")
    assert await ended(slurm, job) is WatchedJobAction.DONE


async def test_what_slurm_does_not_know_or_allow_is_refused(slurm: SlurmBatch, steering: SlurmSteering) -> None:
    assert await steering.details(["99999999"]) == {}
    with pytest.raises(Permanent, match="no longer has the job"):
        await steering.again("99999999", needs={}, wait=0, mark="o")
    job = sbatch("--no-requeue", "-o", "/dev/null", "--wrap", "false")
    assert await ended(slurm, job) is WatchedJobAction.FAILED
    with pytest.raises(Permanent, match="disabled"):
        await steering.again(job, needs={}, wait=0, mark="o")


async def test_what_somebody_cancelled_is_not_run_again(slurm: SlurmBatch, steering: SlurmSteering) -> None:
    """Also if it was cancelled between an order and its being carried out."""
    job = sbatch("--hold", "-o", "/dev/null", "--wrap", "true")
    said("scancel", job)
    assert await ended(slurm, job) is WatchedJobAction.DONE
    for order in (steering.again(job, needs={}, wait=0, mark="o"), steering.hold(job)):
        with pytest.raises(Permanent, match="cancelled"):
            await order
    assert await ended(slurm, job) is WatchedJobAction.DONE


async def test_the_next_try_is_elsewhere_unless_its_user_named_the_node(
    slurm: SlurmBatch, steering: SlurmSteering
) -> None:
    work = ("-o", "/dev/null", "--wrap", 'exit "$((3 - 3 * ${SLURM_RESTART_COUNT:-0}))"')
    free, bound = sbatch(*work), sbatch("--nodelist=n2", *work)
    where = {}
    for job in (free, bound):
        assert await ended(slurm, job) is WatchedJobAction.FAILED
        where[job] = (await slurm.outcome([job]))[job].nodes
        await steering.again(job, needs={}, wait=0, mark="o", avoid=where[job])
        assert await ended(slurm, job) is WatchedJobAction.DONE
    now = {job: (await slurm.outcome([job]))[job].nodes for job in where}
    assert not set(now[free]) & set(where[free])
    assert now[bound] == where[bound] == ("n2",)
    assert "ExcNodeList=(null)" in said("scontrol", "-o", "show", "job", bound)


@pytest.mark.finding("F-A1")
@pytest.mark.finding("F-A7")
async def test_slurm_says_what_a_job_is_and_whose(steering: SlurmSteering, tmp_path: Path) -> None:
    single = sbatch("--hold", "-o", "/dev/null", "--wrap", "true")
    array = sbatch("--hold", "--array=0-2", "-o", "/dev/null", "--wrap", "true")
    (tmp_path / "het.sh").write_text(HETEROGENEOUS)
    parts = sbatch("-o", "/dev/null", str(tmp_path / "het.sh"))
    try:
        identities = await steering.identities([single, array, parts, "99999999"])
        assert {job: identities[job] for job in (single, array, parts)} == {
            single: JobIdentity(JobKind.SINGLE, os.getuid()),
            array: JobIdentity(JobKind.ARRAY, os.getuid()),
            parts: JobIdentity(JobKind.HETEROGENEOUS, os.getuid()),
        }
        assert "99999999" not in identities
    finally:
        said("scancel", single, array, parts)


def test_what_the_queue_forgot_the_accounting_identifies() -> None:
    text = (
        "12_0|14|1000|a\n12_3|12|1000|a\n20+0|20|1001|b\n20+1|21|1001|b\n30|30|1002|c|d\n31|31||e\n32|32|0|allocation\n"
    )
    assert read_accounted_identities(text) == {
        **dict.fromkeys(("14", "12"), JobIdentity(JobKind.ARRAY, 1000)),
        **dict.fromkeys(("20", "21"), JobIdentity(JobKind.HETEROGENEOUS, 1001)),
        "30": JobIdentity(JobKind.SINGLE, 1002),
        "31": JobIdentity(JobKind.SINGLE, None),
    }


HETEROGENEOUS = "#!/bin/sh\n#SBATCH --hold\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\nexit 3\n"


@pytest.mark.finding("F-A1")
@pytest.mark.parametrize("state", ["waiting", "failed"])
@pytest.mark.parametrize("kind", ["array", "heterogeneous"])
async def test_the_base_id_of_several_jobs_is_never_steered(
    steering: SlurmSteering, tmp_path: Path, kind: str, state: str
) -> None:
    if kind == "array":
        job = sbatch("--hold", "--no-requeue", "--array=0-2", "-o", "/dev/null", "--wrap", "exit 3")
    else:
        (tmp_path / "het.sh").write_text(HETEROGENEOUS)
        job = sbatch("--no-requeue", "-o", "/dev/null", str(tmp_path / "het.sh"))

    async def all_failed() -> bool:
        states = said("squeue", "-h", "-t", "all", "--array", "-j", job, "-o", "%T").split()
        return len(states) > 1 and set(states) == {"FAILED"}

    try:
        if state == "failed":
            said("scontrol", "release", job)
            await until(all_failed, "all parts to fail", 60)
        before = MOVING.sub("", said("scontrol", "-o", "show", "job", job))
        words = f"job {job} is an? {kind}"
        with pytest.raises(Permanent, match=words):
            await steering.again(job, needs={"memory": 80 * MIB}, wait=0, mark="o-1")
        with pytest.raises(Permanent, match=words):
            await steering.hold(job)
        with pytest.raises(Permanent, match=words):
            await steering.cancel(job)
        if state == "waiting":  # for what has ended there is nothing to allow
            with pytest.raises(Permanent, match=words):
                await steering.allow_again([job])
        assert MOVING.sub("", said("scontrol", "-o", "show", "job", job)) == before
    finally:
        said("scancel", job)
