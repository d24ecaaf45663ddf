"""Tasks of Nextflow that Slurm itself queues again, on a real Slurm: Nextflow hears of the last start only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from getpass import getuser
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.live.own_slurm import OwnSlurm
from tests.servers import address
from tests.system.insertion.shell import install
from tests.system.shim.test_ask import ARRAY, ELEMENTS
from tests.system.shim.test_before_end import spool_of, wait_for
from tests.system.shim.test_transparent import call

pytestmark = [pytest.mark.live, pytest.mark.finding("F-A3")]

TASK = """#!/bin/bash
on_exit() {{
    exit_status=${{nxf_main_ret:=$?}}
    printf -- $exit_status > {work}/.exitcode
    exit $exit_status
}}
on_term() {{
    set +e
    [[ "$pid" ]] && kill $pid
}}
trap on_exit EXIT
trap on_term TERM INT USR2
seconds=$(cat {work}/seconds)
sleep $seconds & pid=$!
echo begun $(cat {work}/.exitcode) >> {work}/starts
wait $pid || nxf_main_ret=$?
"""
PREEMPTION = """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=urgent Nodes=n1 MaxTime=INFINITE PriorityTier=10 State=UP
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """The shim, installed with records; by a short name, for it stands in the first line of scripts."""
    with TemporaryDirectory(prefix="fs", ignore_cleanup_errors=True) as name:
        place = Path(name)
        install(place / "bin", place / "records")
        spool_of(place).prepare()
        yield place


def task(folder: Path, name: str) -> Path:
    """The work folder of one that runs for minutes."""
    work = folder / name
    work.mkdir()
    (work / ".command.run").write_text(TASK.format(work=work))
    (work / "seconds").write_text("300")
    return work


def submit(folder: Path, script: Path, *words: str, **more: str) -> str:
    out = ("--parsable", "--requeue", "--mem=50", "-o", "/dev/null")
    result = call(folder, "sbatch", *out, *words, str(script), **more)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def starts(work: Path) -> list[str]:
    """With what Nextflow could have read when it began."""
    place = work / "starts"
    return place.read_text().splitlines() if place.exists() else []


def wait_until_queued(job: str, **more: str) -> None:
    wait_for(lambda: call(None, "squeue", "-h", "-j", job, "-o", "%T", **more).stdout.strip() == "PENDING")


def wait_for_second_start(work: Path, job: str, **more: str) -> None:
    # By itself it would wait for two minutes; a start in the second of its end is refused by its node.
    call(None, "scontrol", "update", f"JobId={job}", "StartTime=now+2", **more)
    wait_for(lambda: len(starts(work)) == 2, 180)
    wait_for((work / ".exitcode").exists)


def test_a_task_and_an_element_that_are_requeued(folder: Path) -> None:
    """Nobody watches. The last element has the number of its array, whose other elements are another matter."""
    address("SLURM_CONF")
    cancelled, requeued, signalled = (task(folder, name) for name in ("cancelled", "requeued", "signalled"))
    (cancelled / "array").mkdir()
    (cancelled / "array" / ".command.sh").write_text(ELEMENTS.format(work=f"{cancelled} {requeued}"))
    (cancelled / "array" / ".command.run").write_text(ARRAY.format(work=cancelled))
    array = submit(folder, cancelled / "array" / ".command.run", "--array=0-1")
    single = submit(folder, signalled / ".command.run")
    wait_for(lambda: all(starts(work) for work in (cancelled, requeued, signalled)))
    (requeued / "seconds").write_text("0")
    call(None, "scancel", "--batch", "--signal=TERM", single)
    wait_for((signalled / ".exitcode").exists)
    call(None, "scancel", f"{array}_0")
    again = f"{array}_1"
    call(None, "scontrol", "requeue", again)
    wait_until_queued(again)
    wait_for_second_start(requeued, again)
    assert (starts(requeued), (requeued / ".exitcode").read_text()) == (["begun", "begun"], "0")
    assert (signalled / ".exitcode").read_text() == "143"


NEXTFLOW = ("squeue", "--noheader", "-o", "%i %t", "-t", "all", "-u", getuser())
"""How Nextflow asks."""


@pytest.mark.parametrize("watched", [False, True])
def test_one_that_waits_again_is_running_for_nextflow_which_would_give_it_up(folder: Path, watched: bool) -> None:
    address("SLURM_CONF")
    words = ("sbatch", "--parsable", "--requeue", "--mem=50", "-o", "/dev/null")
    sleeps = ("--wrap", "sleep 300")
    if watched:
        spool_of(folder).vouch(600, hide=100)
    ours, another, first, array, parts, fails, _ = jobs = [
        call(None, *words, *more).stdout.strip()
        for more in (
            ("-J", "nf-part_(1)", *sleeps),
            ("-J", "other", *sleeps),
            ("-J", "nf-part_(2)", "--hold", *sleeps),
            ("-J", "nf-part_(3)", "--array=0-1", "--hold", *sleeps),
            ("-n1", "-J", "nf-parts", "--hold", ":", "-n1", "--mem=50", *sleeps),
            ("-J", "nf-part_(4)", "--wrap", "exit 3"),
            ("-J", "x\n7 F\n7|F|1|nf-", "--hold", *sleeps),  # its name is no line of its own
        )
    ]
    try:
        for job in (ours, another):
            wait_for(partial(has_state, job, "RUNNING"))
            call(None, "scontrol", "requeuehold", job)
            wait_until_queued(job)
        wait_for(partial(has_state, fails, "FAILED"))
        bare, seen = (listed(place, jobs) for place in (None, folder))
        assert (bare[ours], seen[ours]) == ("PD", "R")
        assert [seen[job] for job in (another, first, f"{array}_[0-1]", f"{parts}+0", fails)] == [*["PD"] * 4, "F"]
        assert seen == bare | {ours: "R"}
    finally:
        call(None, "scancel", *jobs)


def listed(through: Path | None, jobs: list[str]) -> dict[str, str]:
    """Of these jobs alone: others come and go."""
    lines = [line.split() for line in call(through, *NEXTFLOW).stdout.splitlines()]
    return {name: state for name, state in lines if re.split(r"[_+]", name)[0] in jobs}


def has_state(job: str, state: str) -> bool:
    return call(None, "squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.strip() == state


@pytest.mark.slow
@pytest.mark.pair
def test_a_task_that_is_preempted_and_one_that_is_cancelled(folder: Path) -> None:
    """While a watcher promises to answer: it is not asked about what Slurm does by itself."""
    slurm = OwnSlurm(folder)
    slurm.start("--nodes", "1")
    try:
        conf = folder / "slurm" / "etc" / "slurm.conf"
        text = re.sub(r"(?m)^KillWait=.*$", "KillWait=30", conf.read_text()) + PREEMPTION
        conf.write_text(text)
        slurm.stop_controller()
        slurm.order("launch", "slurm", "ctld")
        slurm.slurm("scontrol", "reconfigure")
        spool_of(folder).vouch(600, hide=100)
        preempted, cancelled = task(folder, "preempted"), task(folder, "cancelled")
        more = {"SLURM_CONF": str(slurm.conf)}
        jobs = [submit(folder, work / ".command.run", **more) for work in (preempted, cancelled)]
        wait_for(lambda: starts(preempted) and starts(cancelled))
        (preempted / "seconds").write_text("0")
        slurm.slurm("scancel", jobs[1])
        asks = folder / "records" / "asks"
        wait_for((asks / f"{jobs[1]}.0").exists)
        (asks / f"{jobs[1]}.0").unlink()
        wait_for((cancelled / ".exitcode").exists)
        urgent = ("-p", "urgent", "--exclusive", "--mem=0", "-o", "/dev/null", "--wrap", "sleep 1")
        slurm.slurm("sbatch", *urgent)
        wait_until_queued(jobs[0], **more)
        wait_for_second_start(preempted, jobs[0], **more)
        assert not list(asks.iterdir())
        assert (starts(preempted), (preempted / ".exitcode").read_text()) == (["begun", "begun"], "0")
        assert (cancelled / ".exitcode").read_text() == "143"
    finally:
        slurm.order("stop")
