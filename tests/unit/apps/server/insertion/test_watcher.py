"""Users' own jobs on a real Slurm, submitted through the shim by a plain sbatch, looked after by rules on a real server."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.system.insertion.shell import Shell, incident_of, incidents, shell
from tests.unit.apps.server.exceptions.test_engines import add_rule
from tests.unit.apps.server.running import RunningServer, until

pytestmark = pytest.mark.live

MORE: dict[str, object] = {
    "action": "resubmit",
    "how": "changed",
    "needs": {"memory": {"factor": 2.0, "at_most": 400 * 2**20}},
}
GREEDY = "import os,time;x=bytearray(150*2**20);time.sleep(3)"
"""Needs 150 MB for a few seconds, which is long enough for Slurm to see it."""
MOVING = re.compile(r"\b(RunTime|LastSchedEval|SubmitLine)=\S*")

Begin = Callable[..., Awaitable[Shell]]


@pytest.fixture
async def begin(local: RunningServer, tenant: str, tmp_path: Path) -> AsyncIterator[Begin]:
    """A shell with the settings that a test wants."""
    async with AsyncExitStack() as stack:

        async def made(**more: Any) -> Shell:
            return await stack.enter_async_context(shell(tmp_path, local, tenant, **more))

        yield made


async def test_a_job_that_needs_more_memory_gets_it_under_its_own_id(
    local: RunningServer, tenant: str, begin: Begin, tmp_path: Path
) -> None:
    """What an engine polls never says that it failed. What the job wrote down of itself is among the evidence."""
    await add_rule(local, tenant, MORE)
    user = await begin(records=tmp_path / "records")
    job = user.sbatch("--mem=100", "-J", "greedy", "--wrap", f"python3 -c '{GREEDY}'")
    states = await user.settled(job)
    assert states <= {"", "PENDING", "RUNNING", "REQUEUED", "COMPLETED"}, states
    assert "COMPLETED" in states
    incident = await incident_of(local, tenant, job)
    assert (incident["cause"], incident["state"]) == ("memory", "complete")
    evidence = (await local.person("viewer", tenant=tenant).get(f"/v1/incidents/{incident['id']}")).json()["context"][
        "evidence"
    ]
    assert evidence["payload_host"] == os.uname().nodename
    assert evidence["peak_memory"] > 140 * 2**20
    assert not list((tmp_path / "records").iterdir())
    assert (await user.watcher.reader.outcome([job]))[job].restarts == 1


async def test_a_failure_that_nobody_can_recover_is_shown_as_it_is(
    local: RunningServer, tenant: str, begin: Begin
) -> None:
    await add_rule(local, tenant, MORE)
    user = await begin()
    job = user.sbatch("--wrap", "echo 'KeyError: x' >&2; exit 3")
    assert "FAILED" in await user.settled(job)
    assert (await incident_of(local, tenant, job))["state"] == "failed"


@pytest.mark.slow
@pytest.mark.finding("F-A7")
async def test_a_name_and_a_comment_with_escape_codes_are_data(
    local: RunningServer, tenant: str, begin: Begin, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job is recovered like any other, and nothing that is printed of it moves a cursor, sets a title or begins a line."""
    await add_rule(local, tenant, MORE)
    user = await begin()
    name = "x\x1b[2J\x1b]0;owned\x07\x9b31m\u202ey\r\nerror: forged"
    job = user.sbatch("--mem=100", "-J", name, f"--comment={name}", "--wrap", f"python3 -c '{GREEDY}'")
    assert "COMPLETED" in await user.settled(job)
    incident = await incident_of(local, tenant, job)
    assert (incident["cause"], incident["state"]) == ("memory", "complete")
    environment = {**os.environ, "FORESTAY_SERVER": local.url, "FORESTAY_TOKEN": local.domain.token("viewer", tenant=tenant)}  # fmt: skip
    for words, shows in ((["explain", job], True), (["explain", incident["id"]], True), (["inbox"], False)):
        command = shlex.join([sys.executable, "-m", "forestay", *words])
        done = await asyncio.to_thread(
            subprocess.run, ["script", "-qec", command, "/dev/null"], env=environment, capture_output=True, check=False
        )
        printed = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode())
        assert done.returncode == 0, (words, printed)
        assert not set("\x07\x1b\x9b\u202e") & set(printed), (words, printed)
        assert "owned" in printed or not shows, (words, printed)
        assert "\nerror: forged" not in printed.replace("\r", ""), (words, printed)
    logged = capsys.readouterr()
    assert not set("\x07\x1b\x9b") & set(logged.out + logged.err)


async def test_who_looks_on_explains_and_changes_nothing_in_slurm(
    local: RunningServer, tenant: str, begin: Begin
) -> None:
    """The record that Slurm keeps of the job is word for word what it was before anybody looked, whatever a rule says."""
    await add_rule(local, tenant, MORE)
    user = await begin(acting=False)
    job = user.sbatch("--no-requeue", "--mem=100", "--hold", "--wrap", f"python3 -c '{GREEDY}'")
    waiting = _record(user, job)
    await asyncio.sleep(2)  # several looks
    assert _record(user, job) == waiting
    user.bare("scontrol", "release", job)
    assert await user.settled(job) & {"FAILED", "OUT_OF_MEMORY"}
    ended = _record(user, job)
    assert "Requeue=0" in ended
    assert "forestay" not in ended
    assert (await incident_of(local, tenant, job))["cause"] == "memory"
    assert (await user.watcher.reader.outcome([job]))[job].restarts == 0
    assert not (user.folder / "spool" / "watch").exists()


async def test_a_user_who_cancels_is_not_second_guessed(local: RunningServer, tenant: str, begin: Begin) -> None:
    """scancel is Slurm's own: a job that was cancelled, while it ran or while it waited to be tried again, stays cancelled."""
    await add_rule(local, tenant, {**MORE, "wait": 600})
    user = await begin()
    running = user.sbatch("--wrap", "sleep 60")
    recovered = user.sbatch("--mem=100", "--wrap", f"python3 -c '{GREEDY}'")
    await until(lambda: _is(user, running, "RUNNING"), "the job to run", 60)
    await asyncio.to_thread(user.call, "scancel", running)
    assert any(state.startswith("CANCELLED") for state in await user.settled(running))
    await until(lambda: _waits_for_its_next_try(user, recovered), "the recovered job to wait", 60)
    await asyncio.to_thread(user.call, "scancel", recovered)
    assert any(state.startswith("CANCELLED") for state in await user.settled(recovered))
    await asyncio.sleep(2)  # several looks more
    for job in (running, recovered):
        assert user.bare("squeue", "-h", "-t", "all", "-j", job, "-o", "%T") == "CANCELLED"


@pytest.mark.finding("F-A1")
async def test_of_an_array_each_element_is_recovered_and_shown_by_itself(
    local: RunningServer, tenant: str, begin: Begin, tmp_path: Path
) -> None:
    """Two elements want more memory and get it, one has an error that nothing can be done about, five are well. Nobody who polls sees the two fail;
    each has an incident of its own; nothing else runs twice."""
    await add_rule(local, tenant, MORE)
    user = await begin(records=tmp_path / "records")
    work = (
        f"echo start >> {tmp_path}/starts-$SLURM_ARRAY_TASK_ID; case $SLURM_ARRAY_TASK_ID in "
        f"3|7) python3 -c '{GREEDY}' ;; 4) echo KeyError: x >&2; exit 3 ;; esac"
    )
    job = user.sbatch("--array=0-7", "--mem=100", "-J", "scatter", "--wrap", work)
    seen: dict[str, set[str]] = {}

    async def settled() -> bool:
        for words in (
            ("sacct", "-X", "-n", "-P", "-j", job, "-o", "JobID,State"),
            ("squeue", "-h", "-t", "all", "-j", job, "-o", "%i|%T"),
        ):
            for line in (await asyncio.to_thread(user.call, *words)).splitlines():
                name, _, state = line.partition("|")
                seen.setdefault(name, set()).add(state)
        return not list((tmp_path / "spool" / "new").iterdir())

    await until(settled, "the array to be settled", 180)
    assert [(tmp_path / f"starts-{n}").read_text().count("start") for n in range(8)] == [1, 1, 1, 2, 1, 1, 1, 2]
    states = {
        name: seen[name] & {"FAILED", "OUT_OF_MEMORY", "NODE_FAIL"} for name in seen if re.fullmatch(r"\d+_\d+", name)
    }
    assert states == {f"{job}_{n}": ({"FAILED"} if n == 4 else set()) for n in range(8)}
    final = user.call("sacct", "-X", "-n", "-P", "-j", job, "-o", "JobID,State").splitlines()
    assert sorted(final) == [f"{job}_{n}|{'FAILED' if n == 4 else 'COMPLETED'}" for n in range(8)]
    known = {record["task"]: record for record in await incidents(local, tenant)}
    assert {task: record["cause"] for task, record in known.items() if "memory" in record["cause"]} == {
        f"scatter:{job}_{n}": "memory" for n in (3, 7)
    }
    assert set(known) == {f"scatter:{job}_{n}" for n in (3, 4, 7)}
    details = await local.person("viewer", tenant=tenant).get(f"/v1/incidents/{known[f'scatter:{job}_3']['id']}")
    evidence = details.json()["context"]["evidence"]
    assert evidence["payload_host"] == os.uname().nodename
    assert evidence["peak_memory"] > 140 * 2**20
    assert not list((tmp_path / "records").iterdir())
    assert not list((tmp_path / "spool" / "settled").iterdir())


@pytest.mark.finding("F-A2")
async def test_a_chain_and_what_follows_an_array_go_on_after_a_recovery(
    local: RunningServer, tenant: str, begin: Begin, tmp_path: Path
) -> None:
    """The first job of a chain and one element of an array want more memory; nobody but Slurm's own rules for dependencies knows who follows."""
    await add_rule(local, tenant, MORE)
    user = await begin()
    said = f"echo $SLURM_JOB_NAME >> {tmp_path}/starts"
    greedy = f"python3 -c '{GREEDY}'"
    first = user.sbatch("--mem=100", "-J", "first", "--wrap", f"{said}; {greedy}")
    second = user.sbatch("--mem=10", "-J", "second", f"--dependency=afterok:{first}", "--wrap", said)
    third = user.sbatch("--mem=10", "-J", "third", f"--dependency=afterok:{second}", "--wrap", said)
    element = f"[ $SLURM_ARRAY_TASK_ID != 1 ] || {greedy}"
    array = user.sbatch("--array=0-2", "--mem=100", "-J", "array", "--wrap", f"{said}; {element}")
    gather = user.sbatch("--mem=10", "-J", "gather", f"--dependency=afterok:{array}", "--wrap", said)
    jobs = [first, second, third, array, gather]

    async def all_settled() -> bool:
        return not {watched.id for watched in user.watcher.spool.jobs()} & set(jobs)

    await until(all_settled, "the jobs to be settled", 180)
    starts = (tmp_path / "starts").read_text().split()
    assert [name for name in starts if name not in ("array", "gather")] == ["first", "first", "second", "third"]
    assert [name for name in starts if name in ("array", "gather")] == ["array"] * 4 + ["gather"]
    for job in (first, second, third, gather):
        assert user.bare("squeue", "-h", "-t", "all", "-j", job, "-o", "%T") == "COMPLETED", job


@pytest.mark.finding("F-A2")
async def test_a_job_whose_failure_its_user_answers_is_left_to_its_user(
    local: RunningServer, tenant: str, begin: Begin, tmp_path: Path
) -> None:
    """Otherwise both branches would run: the one for success after the recovery, the one for failure before it."""
    await add_rule(local, tenant, {"action": "resubmit"}, condition="true", cause="memory")
    user = await begin()
    said = f"echo $SLURM_JOB_NAME >> {tmp_path}/starts"
    first = user.sbatch("--hold", "-J", "first", "--wrap", f"{said}; exit 3")
    user.sbatch("-J", "good", f"--dependency=afterok:{first}", "--wrap", said)
    user.sbatch("-J", "bad", f"--dependency=afternotok:{first}", "--wrap", said)
    looked = user.watcher.looks
    await until(lambda: _true(user.watcher.looks >= looked + 2), "the watcher to look at them", 60)
    user.bare("scontrol", "release", first)
    assert "FAILED" in await user.settled(first)
    incident = await incident_of(local, tenant, first)
    text = (await local.person("viewer", tenant=tenant).get(f"/v1/incidents/{incident['id']}")).text
    assert f"runs because job {first} failed" in text

    async def both() -> bool:
        return (tmp_path / "starts").read_text().split() == ["first", "bad"]

    await until(both, "the branch for failures to run", 60)
    await asyncio.to_thread(user.bare, "scancel", "--name=good")


@pytest.mark.finding("F-A6")
async def test_a_job_that_must_not_be_requeued_is_not(
    local: RunningServer, tenant: str, begin: Begin, tmp_path: Path
) -> None:
    """Not by us, and not by Slurm because of us: what its user ruled out stays ruled out while it runs."""
    await add_rule(local, tenant, {"action": "resubmit"}, condition="true", cause="memory")
    user = await begin()
    work = f"echo start >> {tmp_path}/starts; until [ -e {tmp_path}/go ]; do sleep 0.1; done; exit 3"
    job = user.sbatch("--no-requeue", "--wrap", work)
    await until(lambda: _is(user, job, "RUNNING"), "the job to run", 60)
    looked = user.watcher.looks
    await until(lambda: _true(user.watcher.looks >= looked + 3), "the watcher to look at it", 60)
    assert "Requeue=0" in user.bare("scontrol", "show", "job", job)
    (tmp_path / "go").touch()
    assert await user.settled(job) <= {"RUNNING", "FAILED"}
    assert user.call("scontrol", "show", "job", job) == user.bare("scontrol", "show", "job", job)
    assert "Requeue=0 Restarts=0" in user.bare("scontrol", "show", "job", job)
    incident = await incident_of(local, tenant, job)
    text = (await local.person("viewer", tenant=tenant).get(f"/v1/incidents/{incident['id']}")).text
    assert f"job {job} may not be requeued" in text
    assert (tmp_path / "starts").read_text() == "start\n"


@pytest.mark.finding("F-A6")
@pytest.mark.parametrize("who", ["user", "site"])
async def test_user_or_site_may_allow_it(
    local: RunningServer, tenant: str, begin: Begin, tmp_path: Path, who: str
) -> None:
    await add_rule(local, tenant, {"action": "resubmit"}, condition="true", cause="memory")
    user = await begin(override_no_requeue=who == "site")
    # It begins only when the watcher has seen it: what has ended Slurm no longer lets anyone change.
    work = f"echo start >> {tmp_path}/starts; exit $((3 - 3 * ${{SLURM_RESTART_COUNT:-0}}))"
    more = {"FORESTAY_REQUEUE": "allow"} if who == "user" else None
    job = user.sbatch("--no-requeue", "--hold", "--wrap", work, more=more)
    await until(lambda: _may_be_requeued(user, job), "the requeue to be allowed", 60)
    user.bare("scontrol", "release", job)
    assert "COMPLETED" in await user.settled(job)
    assert (tmp_path / "starts").read_text() == "start\nstart\n"


async def _true(value: bool) -> bool:
    return value


async def _may_be_requeued(user: Shell, job: str) -> bool:
    return "Requeue=1" in await asyncio.to_thread(user.bare, "scontrol", "show", "job", job)


@pytest.mark.finding("F-A7")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file of another user")
async def test_nobody_can_have_the_job_of_another_user_run_again(
    local: RunningServer, tenant: str, begin: Begin, tmp_path: Path
) -> None:
    await add_rule(local, tenant, {"action": "resubmit"}, condition="true", cause="memory")
    user = await begin()
    job = user.bare("sbatch", "--parsable", "-o", "/dev/null", "--wrap", f"echo start >> {tmp_path}/starts; exit 3")
    word = tmp_path / "spool" / "new" / f"{job}.0.1"
    word.write_bytes(b"".join(part.encode() + b"\0" for part in ("1", job, "", "/", "")))
    os.chown(word, 65534, 65534)
    await until(lambda: _is(user, job, "FAILED"), "the job to be shown as failed", 60)

    async def rejected() -> bool:
        return not word.exists()

    await until(rejected, "the word to be rejected", 60)
    assert user.watcher.rejected == 1
    assert not await incidents(local, tenant)
    assert (tmp_path / "starts").read_text() == "start\n"
    assert "Restarts=0" in user.bare("scontrol", "show", "job", job)


@pytest.mark.slow
async def test_a_storm_of_failing_jobs_is_not_queued_again(local: RunningServer, tenant: str, begin: Begin) -> None:
    """200 jobs fail of one cause that a rule would answer. The first are tried; then there is a storm, and one is at a time."""
    await add_rule(local, tenant, {"action": "resubmit"}, condition='cause == "network"', cause="network")
    user = await begin()
    work = "echo 'ssh: connect to host data1 port 22: Connection refused' >&2; exit 255"

    def submit() -> list[str]:
        return [user.sbatch("--mem=10", "--wrap", work) for _ in range(200)]

    jobs = await asyncio.to_thread(submit)

    async def all_told() -> bool:
        incidents_data = (await local.person("viewer", tenant=tenant).get("/v1/incidents?limit=500")).json()[
            "incidents"
        ]
        return len(
            {incidents_record["task"].rpartition(":")[2] for incidents_record in incidents_data} & set(jobs)
        ) == len(jobs)

    await until(all_told, "an incident of every job", 900)
    await asyncio.sleep(10)
    outcomes = await user.watcher.reader.outcome(jobs)
    tries = sum(outcome.restarts for outcome in outcomes.values())
    assert 0 < tries <= 60, tries
    await asyncio.to_thread(user.bare, "scancel", *jobs)


async def _is(user: Shell, job: str, state: str) -> bool:
    return await user.seen(job) == state


async def _waits_for_its_next_try(user: Shell, job: str) -> bool:
    text = await asyncio.to_thread(user.bare, "scontrol", "-o", "show", "job", job)
    return "JobState=PENDING" in text and "Restarts=1" in text and "forestay:" in text


def _record(user: Shell, job: str) -> str:
    """What Slurm knows of the job, but for what moves by itself."""
    return MOVING.sub("", user.bare("scontrol", "-o", "show", "job", job))
