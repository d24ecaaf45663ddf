"""The sbatch shim beside the bare command, with nobody to hear it: what a call costs more, and whether anything is different.

    just bench shim
    just bench shim --calls 200

Every job is submitted held and cancelled at the end, so that only sbatch is measured. The two arms take turns call by call. Output is compared word for
word, ids must follow on each other, and every job that went through the shim must be in Slurm's queue and in the spool.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.harness import keep, leave

SHIM = Path(__file__).parent.parent / "shim" / "holdfast-shim"
CPU_GOAL, WALL_GOAL = 5.0, 20.0
JOB = ("--hold", "-o", "/dev/null", "--wrap", "true")


def call(known: dict[str, str]) -> tuple[float, float, str]:
    """Seconds of wall and CPU of one sbatch, and what it said."""
    before, since = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    said = subprocess.run(["sbatch", *JOB], env=known, capture_output=True, text=True, check=True)
    wall, after = time.perf_counter() - since, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1000, cpu * 1000, said.stdout + said.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=1000)
    asked = parser.parse_args()
    if "SLURM_CONF" not in os.environ:
        sys.exit('SLURM_CONF is not set: start Slurm (scripts/servers start slurm), then eval "$(scripts/servers env)"')
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([SHIM, "--install", folder / "bin"], check=True, stderr=subprocess.PIPE)
        (folder / "spool" / "new").mkdir(parents=True)
        bare = dict(os.environ)
        through = bare | {"PATH": f"{folder / 'bin'}:{bare['PATH']}", "HOLDFAST_SHIM_SPOOL": str(folder / "spool")}
        arms: dict[str, list[tuple[float, float, str]]] = {"bare": [], "shim": []}
        call(bare), call(through)
        for number in range(asked.calls):
            order = (("bare", bare), ("shim", through))
            for arm, known in order if number % 2 else reversed(order):
                arms[arm].append(call(known))
        jobs = {arm: [int(one[2].split()[-1]) for one in told] for arm, told in arms.items()}
        spooled = {int(one.name.partition(".")[0]) for one in (folder / "spool" / "new").iterdir()}
    queued = {
        int(one) for one in subprocess.run(["squeue", "-h", "-o", "%i"], capture_output=True, text=True, check=True).stdout.split()
    }  # fmt: skip
    every = sorted(jobs["bare"] + jobs["shim"])
    for start in range(0, len(every), 500):
        subprocess.run(["scancel", *map(str, every[start : start + 500])], check=True)
    same = all(
        one[2] == f"Submitted batch job {job}\n" for arm in arms for one, job in zip(arms[arm], jobs[arm], strict=True)
    )
    wall = sorted(one[0] - other[0] for one, other in zip(arms["shim"], arms["bare"], strict=True))
    facts = {
        "calls": asked.calls,
        "wall_p50": statistics.median(wall),
        "wall_p99": percentile(arms["shim"], 0) - percentile(arms["bare"], 0),
        "cpu": statistics.fmean(one[1] for one in arms["shim"]) - statistics.fmean(one[1] for one in arms["bare"]),
        "queued": len(queued & set(every)),
        "spooled": len(spooled & set(jobs["shim"])),
        "load": os.getloadavg()[0],
    }
    print(
        f"{asked.calls} calls each: the shim adds {facts['wall_p50']:.1f} ms (p50) and {facts['wall_p99']:.1f} ms (p99) of wall time and {facts['cpu']:.2f} ms of CPU;"
        f" {facts['queued']} of {2 * asked.calls} queued, {facts['spooled']} of {asked.calls} in the spool; said the same: {same}; load {facts['load']:.1f}"
    )
    print(f"raw figures in {keep('shim', [], facts)}", file=sys.stderr)
    whole = facts["queued"] == 2 * asked.calls and facts["spooled"] == asked.calls and same
    leave(reached=whole and facts["cpu"] <= CPU_GOAL and facts["wall_p99"] <= WALL_GOAL)


def percentile(told: list[tuple[float, float, str]], place: int) -> float:
    """The 99th of a hundred."""
    return sorted(float(one[place]) for one in told)[len(told) * 99 // 100]


if __name__ == "__main__":
    main()
