"""Jobs that fail under a watcher that decides before they end: whoever waits for them sees only how they ended at last. On a real Slurm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.system.insertion.shell import Shell, incidents, shell
from tests.unit.apps.server.exceptions.test_engines import add_rule
from tests.unit.apps.server.fixtures import local, tenant
from tests.unit.apps.server.running import RunningServer, until

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.pair, pytest.mark.finding("F-A2")]

RECOVERS = '[ "$SLURM_RESTART_COUNT" = 1 ] || exit 3'


@pytest.fixture
async def user(local: RunningServer, tenant: str) -> AsyncIterator[Shell]:
    """By a short name, for it stands in the first line of scripts."""
    with TemporaryDirectory(prefix="fs") as name:
        folder = Path(name)
        async with shell(folder, local, tenant, records=folder / "records", before_end=True) as user:
            yield user


@pytest.fixture
async def rule(local: RunningServer, tenant: str) -> None:
    await add_rule(local, tenant, {"action": "resubmit"}, condition="true", cause="memory")


def submit(user: Shell, name: str, *words: str, work: str = "true") -> str:
    """A job that writes its name down whenever it starts."""
    return user.sbatch("--mem=10", *words, "--wrap", f"echo {name} >> {user.folder}/starts; {work}")


def starts(user: Shell) -> list[str]:
    return (user.folder / "starts").read_text().split()


async def completed(user: Shell, jobs: list[str], seconds: float = 300) -> set[str]:
    """Every reason for which one of them waited until all were completed."""
    reasons: set[str] = set()

    async def all_of_them() -> bool:
        ids = ",".join(jobs)
        reasons.update((await asyncio.to_thread(user.bare, "squeue", "-h", "-t", "PD", "-j", ids, "-o", "%r")).split())
        states = await asyncio.to_thread(user.bare, "sacct", "-X", "-n", "-P", "-j", ids, "-o", "State")
        return states.split() == ["COMPLETED"] * len(jobs)

    await until(all_of_them, f"{len(jobs)} jobs to complete", seconds)
    return reasons


@pytest.mark.usefixtures("rule")
async def test_every_kind_of_dependent_sees_only_the_last_end(user: Shell, local: RunningServer, tenant: str) -> None:
    first = submit(user, "first", work=f"until [ -e {user.folder}/go ]; do sleep 0.1; done; {RECOVERS}")
    waiting = asyncio.create_task(
        asyncio.to_thread(
            user.run, "sbatch", "--wait", "-o", "/dev/null", f"--dependency=afterok:{first}", "--wrap", "true"
        )
    )
    after = [submit(user, kind, f"--dependency={kind}:{first}") for kind in ("afterok", "afterany")]
    never = submit(user, "never", f"--dependency=afternotok:{first}", "--kill-on-invalid-dep=yes")
    (user.folder / "go").touch()
    reasons = await completed(user, [first, *after])
    assert "DependencyNeverSatisfied" not in reasons
    assert starts(user) == ["first", "first", *starts(user)[2:]]
    assert sorted(starts(user)[2:]) == ["afterany", "afterok"]
    assert (await waiting).returncode == 0
    assert (await user.settled(never)) <= {"PENDING", "CANCELLED", "CANCELLED by 0", ""}
    (incident,) = await incidents(local, tenant)
    assert (incident["state"], incident["task"].rpartition(":")[2]) == ("complete", first)


async def test_a_job_that_no_rule_answers_ends_as_its_script_did(user: Shell) -> None:
    job = submit(user, "first", work="exit 3")
    states = await user.settled(job)
    await until(lambda: asyncio.to_thread(lambda: user.bare("squeue", "-h", "-j", job) == ""), "its end", 60)
    assert states <= {"", "PENDING", "RUNNING", "FAILED"}
    assert user.bare("sacct", "-X", "-n", "-P", "-j", job, "-o", "State,ExitCode") == "FAILED|3:0"
    assert starts(user) == ["first"]


@pytest.mark.slow
@pytest.mark.usefixtures("rule")
async def test_a_chain_of_ten_in_which_every_job_fails_once(user: Shell) -> None:
    jobs: list[str] = []
    for number in range(10):
        words = [f"--dependency=afterok:{jobs[-1]}"] if jobs else []
        jobs.append(submit(user, str(number), *words, work=RECOVERS))
    reasons = await completed(user, jobs, 500)
    assert "DependencyNeverSatisfied" not in reasons
    assert starts(user) == [str(number) for number in range(10) for _ in range(2)]


@pytest.mark.slow
@pytest.mark.usefixtures("rule")
async def test_a_fan_of_a_hundred(user: Shell) -> None:
    first = submit(user, "first", work=RECOVERS)
    fan = [submit(user, "fan", f"--dependency=afterok:{first}") for _ in range(100)]
    last = submit(user, "last", f"--dependency=afterok:{':'.join(fan)}")
    reasons = await completed(user, [first, *fan, last], 500)
    assert "DependencyNeverSatisfied" not in reasons
    assert starts(user) == ["first", "first", *["fan"] * 100, "last"]


@pytest.mark.slow
@pytest.mark.usefixtures("rule")
async def test_an_element_of_an_array_asks_for_itself(user: Shell) -> None:
    array = submit(user, "$SLURM_ARRAY_TASK_ID", "--array=0-3", work=f"[ $SLURM_ARRAY_TASK_ID != 2 ] || {RECOVERS}")
    after = submit(user, "after", f"--dependency=afterok:{array}")
    reasons = await completed(user, [after])
    assert "DependencyNeverSatisfied" not in reasons
    assert sorted(starts(user)) == ["0", "1", "2", "2", "3", "after"]
