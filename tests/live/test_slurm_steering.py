"""What a real Slurm can be made to do with a user's job under the id it has."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.servers import address
from tests.unit.apps.server.running import until

from forestay.adapters.slurm.batch import SlurmBatch
from forestay.adapters.slurm.steering import SOONEST, SlurmSteering, read_accounted_identities
from forestay.adapters.system.commands import SystemCommands
from forestay.domain.sites.batch import BatchState
from forestay.domain.sites.watched_job import ArrayReading, JobIdentity, JobKind, WatchedJobAction, fate
from forestay.ports.commands import CommandResult
from forestay.ports.errors import Permanent, Transient

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
    said("scontrol", "update", f"JobId={job}", "Comment=forestay:o-2", f"StartTime=now+{SOONEST}")
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


@pytest.mark.finding("F-A7")
async def test_a_name_with_line_ends_says_nothing_of_another_job(slurm: SlurmBatch, steering: SlurmSteering) -> None:
    """Slurm takes any name, and prints it as it is."""
    other = sbatch("--hold", "--mem=50", "-o", "/dev/null", "--wrap", "true")
    queue = f"{other}|{other}|N/A|FAILED|None|n1|768|0|2026-11-15T18:39:01|2026-11-15T18:39:01|x"
    accounted = f"{other}|{other}|FAILED|None|n1|3:0|2026-11-15T18:39:01|2026-11-15T18:39:02|x"
    name = f"a\n{queue}\n{accounted}\n{other}|{other}|4711|x"
    forger = sbatch("--mem=50", "-o", "/dev/null", "-J", name, "--wrap", "true")
    try:
        assert await ended(slurm, forger) is WatchedJobAction.DONE
        assert (await slurm.outcome([other, forger]))[other].word == "PENDING"
        # As if the queue had forgotten both, which takes minutes.
        form = ("--noheader", "--parsable2", "-X")

        async def accounted_for() -> bool:
            return "4711" in said("sacct", *form, "--format=JobName", f"--jobs={forger}")

        await until(accounted_for, "the accounting to know the name", 60)
        assert (await steering._accounted([other, forger]))[other].owner == os.getuid()
    finally:
        said("scancel", other)


@pytest.mark.finding("F-A7")
@pytest.mark.parametrize(
    "name",
    [
        "x UserId=somebody(4711) TimeLimit=10:00:00 MinMemoryNode=900G Requeue=0 JobState=CANCELLED",
        "x UserId=somebody(4711) GroupId=x(1) MCS_label=N/A TimeLimit=10:00:00 MinMemoryNode=900G Requeue=0",
        "x\ny TimeLimit=10:00:00 MinMemoryNode=900G Requeue=0 UserId=somebody(4711) \x1b[2J",
    ],
)
async def test_a_name_says_nothing_but_the_name(slurm: SlurmBatch, steering: SlurmSteering, name: str) -> None:
    comment = "UserId=somebody(4711) \x1b]0;x\x07"
    job = sbatch("--mem=50", "--time=5", "-o", "/dev/null", "-J", name, f"--comment={comment}", "--wrap", "exit 3")
    assert await ended(slurm, job) is WatchedJobAction.FAILED
    known = (await steering.details([job]))[job]
    assert known.user == said("id", "-un")
    assert known.needs == {"cpus": 1, "memory": 50 * MIB, "wall": 300}
    assert known.requeue
    assert known.name.startswith("x")
    assert "\n" not in known.name


def test_what_the_queue_forgot_the_accounting_identifies() -> None:
    text = (
        "12_0|14|1000|a\n12_3|12|1000|a\n20+0|20|1001|b\n20+1|21|1001|b\n30|30|1002|c|d\n31|31||e\n32|32|0|allocation\n"
    )
    assert read_accounted_identities(text, "|") == {
        **dict.fromkeys(("14", "12"), JobIdentity(JobKind.ARRAY, 1000)),
        **dict.fromkeys(("20", "21"), JobIdentity(JobKind.HETEROGENEOUS, 1001)),
        "30": JobIdentity(JobKind.SINGLE, 1002),
        "31": JobIdentity(JobKind.SINGLE, None),
    }


@pytest.mark.finding("F-A1")
async def test_one_element_of_an_array_runs_once_more_and_no_other(
    slurm: SlurmBatch, steering: SlurmSteering, tmp_path: Path
) -> None:
    """Also the element whose own number is the array's, which Slurm gives to the last one that starts."""
    work = f'echo start >> {tmp_path}/$SLURM_ARRAY_TASK_ID; [ "$SLURM_RESTART_COUNT" = 1 ] || exit $SLURM_ARRAY_TASK_ID'
    array = sbatch("--array=0-3", "--mem=50", "--comment=mine", "-o", f"{tmp_path}/out-%a", "--wrap", work)
    elements = [f"{array}_{k}" for k in range(4)]
    assert [await ended(slurm, job) for job in elements] == [WatchedJobAction.DONE, *[WatchedJobAction.FAILED] * 3]
    own = {job: said("squeue", "-h", "-t", "all", "-j", job, "-o", "%A") for job in elements}
    last = next(job for job in elements if own[job] == array)
    other = next(job for job in reversed(elements) if job != last)
    for job in (last, other):
        known = (await steering.details([job]))[job]
        assert known.logs == (f"{tmp_path}/out-{job.partition('_')[2]}",)
        await again_soon(steering, job, needs={"memory": 80 * MIB}, mark=f"o-{job}")
        assert (await steering.details([job]))[job].needs["memory"] == 80 * MIB
    assert [await ended(slurm, job) for job in (last, other)] == [WatchedJobAction.DONE] * 2
    outcomes = await slurm.outcome(elements)
    again = {job for job, outcome in outcomes.items() if outcome.restarts}
    assert again == {last, other}
    for job in elements:
        starts = (tmp_path / job.partition("_")[2]).read_text()
        assert starts == "start\n" * (2 if job in again else 1), job
        details = (await steering.details([job]))[job]
        assert (details.mark, details.needs["memory"]) == (
            (f"o-{job}", 80 * MIB) if job in again else ("", 50 * MIB)
        ), job


async def again_soon(steering: SlurmSteering, job: str, *, needs: Mapping[str, int], mark: str) -> None:
    """Once its node has tidied up."""

    async def done() -> bool:
        try:
            await steering.again(job, needs=needs, wait=0, mark=mark)
        except Transient:
            return False
        return True

    await until(done, f"job {job} to be queued again", 60)


@pytest.mark.finding("F-A1")
async def test_of_an_array_only_elements_that_are_not_well_are_named(
    slurm: SlurmBatch, steering: SlurmSteering
) -> None:
    """And an array is over when each element has ended."""
    array = sbatch("--hold", "--array=0-5", "-o", "/dev/null", "--wrap", "exit $((SLURM_ARRAY_TASK_ID % 3 == 2))")
    assert await steering.elements([array]) == {array: ArrayReading(frozenset(), frozenset(), True)}
    assert not await steering.is_over(array)
    said("scontrol", "release", array)
    for job in (f"{array}_{k}" for k in range(6)):
        await ended(slurm, job)
    failed = {f"{array}_2", f"{array}_5"}

    async def reading() -> ArrayReading:
        return (await steering.elements([array]))[array]

    async def quiet() -> bool:
        return not (await reading()).active

    await until(quiet, "the nodes to tidy up", 60)
    assert await reading() == ArrayReading(frozenset(failed), frozenset(), False)
    assert await steering.is_over(array)
    await again_soon(steering, f"{array}_2", needs={}, mark="o-1")
    assert not await steering.is_over(array)
    said("scancel", f"{array}_2")


@pytest.mark.finding("F-A1")
async def test_ten_thousand_elements_that_wait_cost_what_one_costs(slurm: SlurmBatch) -> None:
    counting = CountingCommands()
    steering = SlurmSteering(SlurmBatch(counting, os.environ))
    sizes = []
    for elements in ("0-1", "0-9999"):
        array = sbatch("--hold", f"--array={elements}", "-o", "/dev/null", "--wrap", "true")
        try:
            assert (await steering.elements([array]))[array].active
        finally:
            said("scancel", array)
        sizes.append((counting.calls, counting.read))
        counting.calls = counting.read = 0
    (calls, read), (many_calls, many_read) = sizes
    assert many_calls == calls == 2
    assert many_read <= read + 10


@dataclass
class CountingCommands:
    """The system's, and how often and how much they said."""

    system: SystemCommands = field(default_factory=SystemCommands)
    calls: int = 0
    read: int = 0

    async def run(self, command: Sequence[str], **more: Any) -> CommandResult:
        result = await self.system.run(command, **more)
        self.calls += 1
        self.read += len(result.out)
        return result


@pytest.mark.finding("F-A1")
async def test_user_or_site_may_allow_that_elements_run_again(steering: SlurmSteering) -> None:
    """Elements that have ended are Slurm's to refuse; the others are allowed, and those that wait stay one record."""
    work = "[ $SLURM_ARRAY_TASK_ID -gt 0 ] || exit 0; sleep 60"
    array = sbatch("--no-requeue", "--array=0-9%2", "-o", "/dev/null", "--wrap", work)

    def requeue() -> set[str]:
        return set(said("squeue", "-h", "-t", "all", "-j", array, "-O", "State:|,JobArrayID:|,Requeue:").split())

    async def two_run() -> bool:
        return {f"COMPLETED|{array}_0|0", f"RUNNING|{array}_2|0"} <= requeue()

    try:
        await until(two_run, "two elements to run", 60)
        await steering.allow_again([array])
        assert requeue() == {
            f"COMPLETED|{array}_0|0",
            f"RUNNING|{array}_1|1",
            f"RUNNING|{array}_2|1",
            f"PENDING|{array}_[3-9%2]|1",
        }
    finally:
        said("scancel", array)


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
        if state == "waiting" and kind == "heterogeneous":  # for what has ended there is nothing to allow
            with pytest.raises(Permanent, match=words):
                await steering.allow_again([job])
        assert MOVING.sub("", said("scontrol", "-o", "show", "job", job)) == before
    finally:
        said("scancel", job)
