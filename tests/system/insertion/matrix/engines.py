"""How users submit: plain sbatch in its forms, Snakemake, Nextflow. Each is a function that submits in one arm, waits as its user does, and says what that user met."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.system.insertion.matrix.faults import Fault
from tests.system.insertion.matrix.room import CGROUP, Arm
from tests.system.insertion.matrix.verdict import Met
from tests.system.insertion.nextflow import QUIET, nextflow_command
from tests.system.insertion.snakemake import SNAKEMAKE

HERE = Path(__file__).parents[1]
BAD = {"BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
HEAD = """#!/bin/sh
# A user's own script over jobs: submits one, asks until it has ended, then the next; the first error ends it.
one() {
  id=$(sbatch --parsable @OPTIONS@ --wrap "exec measure $1") || exit 3
  while :; do
    state=$(sacct -X -n -P -j "$id" -o State) || exit 4
    case $state in
      COMPLETED) return ;;
      '' | PENDING | RUNNING | COMPLETING | REQUEUED | CONFIGURING) sleep 2 ;;
      *) echo "job $id: $state" >&2; exit 5 ;;
    esac
  done
}
one 1
one 2
"""


def options(fault: Fault) -> list[str]:
    more = [] if fault.requeue else ["--no-requeue"]
    return ["--mem=100", f"--time={fault.minutes}", "-o", "out-%j", *more]


async def single(arm: Arm, fault: Fault) -> Met:
    return await _submitted(arm, [[*options(fault), "--wrap", "exec measure 1"]])


async def array(arm: Arm, fault: Fault) -> Met:
    words = [*options(fault), "--array=1-3", "--wrap", "exec measure $SLURM_ARRAY_TASK_ID"]
    return await _submitted(arm, [words])


async def chain(arm: Arm, fault: Fault) -> Met:
    jobs = [[*options(fault), "--wrap", f"exec measure {part}"] for part in (1, 2, 3)]
    return await _submitted(arm, jobs, chained=True)


async def het(arm: Arm, fault: Fault) -> Met:
    words = [*options(fault), "-n1", ":", "-n1", "--mem=100"]
    (arm.folder / "job.sh").write_text("#!/bin/sh\nexec measure 1\n")
    return await _submitted(arm, [[*words, "job.sh"]])


async def waited(arm: Arm, fault: Fault) -> Met:
    return await _command(arm, "sbatch", "--wait", *options(fault), "--wrap", "exec measure 1")


async def script(arm: Arm, fault: Fault) -> Met:
    place = arm.folder / "head.sh"
    place.write_text(HEAD.replace("@OPTIONS@", " ".join(options(fault))))
    return await _command(arm, "sh", str(place))


async def snakemake(arm: Arm, fault: Fault, *more: str) -> Met:
    text = (HERE / "Snakefile").read_text().replace("runtime=5", f"runtime={fault.minutes}")
    (arm.folder / "Snakefile").write_text(text)
    requeue = "--slurm-requeue" if fault.requeue else "--slurm-no-requeue"
    return await _command(arm, *SNAKEMAKE, requeue, *more, alarm="Error in rule")


async def snakemake_arrays(arm: Arm, fault: Fault) -> Met:
    # Each element also waits for the output of the first one, and fails without it. By sacct, all elements have the state of the last one.
    settings = ("--latency-wait", "240", "--slurm-status-command", "squeue")
    return await snakemake(arm, fault, "--slurm-array-jobs", "all", *settings)


async def nextflow(arm: Arm, fault: Fault, config: str = "") -> Met:
    text = (HERE / "main.nf").read_text().replace("5 min", f"{fault.minutes} min")
    (arm.folder / "main.nf").write_text(text)
    polls = (
        "executor.pollInterval = '1 sec'\nexecutor.queueStatInterval = '2 sec'\nexecutor.exitReadTimeout = '60 sec'\n"
    )
    (arm.folder / "nextflow.config").write_text(f"process.executor = 'slurm'\n{polls}{config}")
    arm.environment |= QUIET | {"NXF_HOME": str(arm.folder / "home")}
    if fault.requeue:  # Nextflow submits everything with --no-requeue
        arm.environment["FORESTAY_REQUEUE"] = "allow"
    return await _command(arm, *nextflow_command(), "run", "main.nf", "-ansi-log", "false", alarm="Error executing")


async def nextflow_arrays(arm: Arm, fault: Fault) -> Met:
    return await nextflow(arm, fault, "process { withName: part { array = 2 } }\n")


class Way(NamedTuple):
    """One way of submission."""

    engine: str
    name: str
    run: Callable[[Arm, Fault], Coroutine[None, None, Met]]
    greed: int = 150
    """Megabytes that its first part wants where memory is short."""
    asking: bool = False
    """Its jobs ask before they end."""
    skips: Mapping[str, str] = {}
    """Failures, or kinds of Slurm, that it cannot meet, and why."""


STEP = {"memory, the whole script": "as one process: the engine's own shell is always between the job and the program"}
OWN_STEP = STEP | {"memory, an srun step": "as one process: the engine starts every job as an srun step already"}
WAYS = (
    Way("sbatch", "single", single),
    Way("sbatch", "array", array),
    Way("sbatch", "chain (afterok)", chain),
    Way("sbatch", "--wait", waited),
    Way("sbatch", "heterogeneous", het, skips={CGROUP: "each part of a heterogeneous job takes a node of its own"}),
    Way("sbatch", "a script that polls", script),
    Way("Snakemake", "shim", snakemake, 700, False, OWN_STEP),
    Way("Snakemake", "shim, --slurm-array-jobs", snakemake_arrays, 700, False, OWN_STEP),
    Way("Nextflow", "shim, --before-end", nextflow, 700, True, STEP),
    Way("Nextflow", "shim, --before-end, array", nextflow_arrays, 700, True, STEP),
)


async def _command(arm: Arm, *words: str, alarm: str = "") -> Met:
    """The user waits for one command."""
    began = time.time()
    ran = await arm.run(*words)
    ended = time.time()
    printed = ran.stdout + ran.stderr
    (arm.folder / "said").write_text(printed)
    alarms = tuple(
        word
        for word, there in ((f"exit {ran.returncode}", ran.returncode != 0), (alarm, alarm and alarm in printed))
        if there
    )
    merged = arm.folder / "out" / "merged.txt"
    # An engine may take what is there of a part for the whole.
    whole = not alarm or (merged.exists() and sorted(merged.read_text().split()) == ["1", "2"])
    await arm.over()
    at = ended if alarms else float("inf")
    good = ran.returncode == 0 and whole
    told = f"exit {ran.returncode}" + (" with an incomplete result" if ran.returncode == 0 and not whole else "")
    return Met(good, told, alarms, at, arm.starts(), arm.ends(), ended - began)


async def _submitted(arm: Arm, jobs: list[list[str]], *, chained: bool = False) -> Met:
    """The user submits some jobs and asks now and then what became of them."""
    began = time.time()
    names: list[str] = []
    for words in jobs:
        after = [f"--dependency=afterok:{names[-1]}"] if chained and names else []
        ran = await arm.run("sbatch", "--parsable", *after, *words)
        if ran.returncode:
            return Met(False, f"sbatch: exit {ran.returncode}: {ran.stderr[-200:]}", ("sbatch failed",), time.time())
        names.append(ran.stdout.strip())
    over = asyncio.create_task(arm.over())
    states: dict[str, str] = {}
    alarms: dict[str, float] = {}
    last = False
    while not last:
        last = over.done()
        ran = await arm.run("sacct", "-X", "-n", "-P", "-j", ",".join(names), "-o", "JobID,State", seconds=200)
        if ran.stdout:
            states.clear()  # an array is first told as one line
        for line in ran.stdout.splitlines():
            job, _, state = line.partition("|")
            states[job] = state.partition(" ")[0]
            if states[job] in BAD:
                alarms.setdefault(states[job], time.time())
        if not last:
            await asyncio.wait([over], timeout=1.5)
    ended = {job: state for job, state in states.items() if "[" not in job}
    good = bool(ended) and set(ended.values()) == {"COMPLETED"}
    states_shown = ", ".join(state for _, state in sorted(ended.items()))
    first = min(alarms.values(), default=float("inf"))
    return Met(good, states_shown, tuple(sorted(alarms)), first, arm.starts(), arm.ends(), time.time() - began)
