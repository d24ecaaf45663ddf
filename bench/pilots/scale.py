"""The simulation far beyond the paper's size, interpreted and compiled.

    just bench pilots scale                                        # 10³ to 10⁶ jobs, up to 10⁵ pilots
    just bench pilots scale --compiled --jobs 10000000 --pilots 100000

``--compiled`` hands the very same files (matching, caches, simulation) to mypyc and runs what comes out. It counts only if it agrees with the interpreted run at 10³, 10⁴
and 10⁵ jobs; the same code with the same luck must agree to the last digit. A C compiler and Python's headers are needed for that.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.harness import keep
from bench.pilots.arms import LOOK_AHEAD
from bench.pilots.bound import clairvoyant
from bench.pilots.draws import CONDITIONS, Draws
from bench.pilots.simulation import Simulation
from bench.pilots.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]
SLOTS = 4
COMPILED = (
    "forestay/domain/scheduling/cache_index.py", "forestay/domain/scheduling/colocation.py", "forestay/domain/scheduling/cache_domains.py",
    "forestay/domain/scheduling/waiting_jobs.py", "forestay/domain/scheduling/delay_scheduling.py", "forestay/domain/scheduling/matching.py",
    "forestay_pilot/cache/cache_policy.py",
    "bench/pilots/events.py", "bench/pilots/draws.py", "bench/pilots/caches.py", "bench/pilots/desk.py",
    "bench/pilots/simulation.py", "bench/pilots/workloads.py", "bench/pilots/bound.py",
)  # fmt: skip
AGREE = ("makespan", "bound", "hit ratio", "storage reads", "evicted", "runs")


def once(workload: str, jobs: int, pilots: int, condition: str, seed: int) -> dict[str, Any]:
    """One run of about so many jobs, and what it cost."""
    per = WORKLOADS[workload](1).jobs
    made = WORKLOADS[workload](max(1, jobs // per))
    draws = Draws(seed, CONDITIONS[condition])
    gc.disable()  # nothing here is made in circles; looking for them takes a fifth of the time
    since = time.process_time()
    simulation = Simulation(made, draws, LOOK_AHEAD, hosts=pilots // SLOTS, slots=SLOTS, window=2 * pilots)
    outcome = simulation.run()
    cpu = time.process_time() - since
    bound = clairvoyant(made, draws, pilots)
    return {
        "workload": workload, "jobs": made.jobs, "pilots": pilots, "condition": condition, "seed": seed,
        "makespan": outcome.makespan, "bound": bound.synchronous, "hit ratio": outcome.hit_ratio,
        "storage reads": outcome.storage_reads, "evicted": outcome.evicted, "runs": outcome.runs,
        "events": outcome.events, "cpu": round(cpu, 3), "jobs a second": round(made.jobs / cpu),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "compiled": Simulation.__init__.__class__.__name__ != "function",
    }  # fmt: skip


def build(folder: Path) -> None:
    """The same files, compiled."""
    for package in ("src/forestay", "src/forestay_pilot", "bench"):
        shutil.copytree(
            ROOT / package,
            folder / Path(package).name,
            ignore=shutil.ignore_patterns("__pycache__", "results", "adapters"),
        )
    compiler = [
        "uv",
        "run",
        "--no-project",
        "--python",
        sys.executable,
        "--with",
        "mypy",
        "--with",
        "setuptools",
        "mypyc",
    ]
    words = [*compiler, "--python-version", f"3.{sys.version_info.minor}", *COMPILED]
    done = subprocess.run(
        words, cwd=folder, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"MYPYPATH": str(folder)},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"mypyc failed:\n{done.stdout[-3000:]}")


def apart(folder: Path | None, **fields: object) -> dict[str, Any]:
    """One run in a process of its own, so that its memory is its own; of the compiled files if there is a folder with them."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(folder)] if folder else [str(ROOT), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-m", "bench.pilots.scale", json.dumps(fields)],
        cwd=folder or ROOT, env=environment, check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    read: dict[str, Any] = json.loads(done.stdout)
    print(
        f"  {read['workload']} {read['jobs']:>9} jobs {read['pilots']:>6} pilots {'compiled   ' if read['compiled'] else 'interpreted'}"
        f" {read['cpu']:>8.1f} s CPU {read['jobs a second']:>7}/s {read['memory'] >> 20:>5} MiB"
        f"  × {read['makespan'] / read['bound']:.4f}  hits {read['hit ratio']:.4f}  evicted {read['evicted']}",
        file=sys.stderr,
    )
    return read


def sizes(most: int, pilots: int) -> list[tuple[int, int]]:
    """Jobs and pilots in decades: a hundred jobs a pilot, so that caches fill and run over; as many pilots as asked for with the most jobs."""
    results = []
    jobs = 1_000
    while jobs < most:
        results.append((jobs, max(40, min(pilots, jobs // 100))))
        jobs *= 10
    return [*results, (most, pilots)]


def run(args: argparse.Namespace) -> bool:
    """All sizes, and whether both ways agree."""
    rows: list[dict[str, Any]] = []
    agreed = True
    with tempfile.TemporaryDirectory(prefix="forestay-bench-") as name:
        folder = Path(name) if args.compiled else None
        if folder is not None:
            build(folder)
        for jobs, pilots in sizes(args.jobs, args.pilots):
            for workload in args.workloads.split(","):
                asked = {
                    "workload": workload, "jobs": jobs, "pilots": pilots, "condition": args.condition, "seed": 1
                }  # fmt: skip
                plain = apart(None, **asked) if folder is None or jobs <= 100_000 else None
                quick = apart(folder, **asked) if folder is not None else None
                rows += [record for record in (plain, quick) if record is not None]
                if plain is not None and quick is not None:
                    same = all(plain[what] == quick[what] for what in AGREE)
                    agreed = agreed and same
                    if not same:
                        print(f"  they differ: {[(what, plain[what], quick[what]) for what in AGREE]}", file=sys.stderr)
    largest = [row for row in rows if row["jobs"] > 0.5 * args.jobs]
    figures = {
        "agree": agreed if args.compiled else None,
        "slowest of the largest": min(record["jobs a second"] for record in largest),
        "load": os.getloadavg()[0],
        "rows": rows,
    }
    if not args.no_keep:
        keep(f"pilots_scale_{'compiled' if args.compiled else 'interpreted'}", [], figures)
    print({name: value for name, value in figures.items() if name != "rows"})
    return agreed


if __name__ == "__main__":
    print(json.dumps(once(**json.loads(sys.argv[1]))))
