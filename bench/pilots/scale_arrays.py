"""The simulation in arrays up to 10⁷ jobs and 10⁵ pilots, held against the one that drives the servers' own code.

    just bench pilots arrays                                       # 10³ to 10⁷ jobs, up to 10⁵ pilots
    just bench pilots arrays --jobs 100000 --plain                 # without a compiler: slow

It is compiled by Numba, which is fetched for that and is no dependency.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from array import array
from pathlib import Path
from typing import Any

from bench.harness import command, keep
from bench.pilots.caches import JOB_SPACE, SPACE
from bench.pilots.draws import CONDITIONS, ORDER, Draws, uniform
from bench.pilots.kernel import CHAIN, MERGE, SPLIT, Kernel, make
from bench.pilots.scale import SLOTS, once, sizes
from bench.pilots.simulation import Costs
from bench.pilots.workloads import FILE, WORKLOADS
from forestay_pilot.cache.cache_policy import host_cache_size

ROOT = Path(__file__).parents[2]
SHAPES = {"W1": CHAIN, "W2": SPLIT, "W3": MERGE}
MAKESPAN = 0.01
"""How far the makespan may be off, as a share."""
HITS, FEW, HITS_OF_FEW = 0.005, 5_000, 0.015
"""How far the hit ratio, and reads from storage as a share of all reads, may be off; more where jobs are few, since all of it is in the last round of jobs."""
HELD_AGAINST = 100_000
"""Up to so many jobs both are run."""


def plain() -> tuple[Kernel, Any]:
    """Interpreted, over arrays of the standard library."""

    def zeros(kind: str, many: int, value: int = 0) -> Any:
        return array(kind, [value]) * max(1, many)

    return make(uniform, lambda function: function), zeros


def quick() -> tuple[Kernel, Any]:
    """Compiled by Numba, over its arrays."""
    numba: Any = importlib.import_module("numba")
    numpy: Any = importlib.import_module("numpy")
    word = numpy.uint64

    def drawn(seed: int, job: int, what: int, again: int) -> float:
        mixed = (
            word(seed) * word(0x9E3779B97F4A7C15) + word(job) * word(0xBF58476D1CE4E5B9)
            + word(what) * word(0x94D049BB133111EB) + word(again) * word(0xD6E8FEB86659FD93)
        )  # fmt: skip
        mixed = (mixed ^ (mixed >> word(30))) * word(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> word(27))) * word(0x94D049BB133111EB)
        mixed ^= mixed >> word(31)
        return float((float(mixed >> word(11)) + 0.5) * 2.0**-53)

    kinds = {"d": numpy.float64, "i": numpy.int32, "b": numpy.int8}

    def zeros(kind: str, many: int, value: int = 0) -> Any:
        return numpy.full(max(1, many), value, dtype=kinds[kind])

    return make(numba.njit(drawn), numba.njit), zeros


def simulate(
    made: tuple[Kernel, Any], workload: str, jobs: int, pilots: int, condition: str, seed: int
) -> dict[str, Any]:
    """One run of about so many jobs, and what it cost."""
    kernel, zeros = made
    flow = WORKLOADS[workload](max(1, jobs // WORKLOADS[workload](1).jobs))
    many, first, hosts = flow.jobs, len(flow.steps[0]), pilots // SLOTS
    draws, costs = Draws(seed, CONDITIONS[condition]), Costs()
    storage = draws.storage
    access = FILE / storage.rate + storage.delay * draws.computing
    luck = zeros("d", 7)
    values = (draws.computing, draws.spread, access, storage.failure, FILE / storage.local, costs.claim, costs.release)
    for place, value in enumerate(values):
        luck[place] = value
    room = host_cache_size(SPACE, SLOTS, JOB_SPACE) // FILE
    order = zeros("i", pilots)
    for place, pilot in enumerate(sorted(range(pilots), key=lambda number: uniform(seed, number, ORDER, 0))):
        order[place] = pilot
    since = time.process_time()
    makespan, hits, reads, from_storage, evicted, events = kernel.run(
        SHAPES[workload], first, many, pilots, SLOTS, room, seed, luck, order,
        zeros("b", many), zeros("b", many - first), zeros("i", many, -1), zeros("i", many, -1), zeros("i", hosts * room), zeros("i", hosts),
        zeros("i", 2 * hosts, -1), zeros("i", 2 * hosts, -1), zeros("i", many), zeros("i", first),
        zeros("b", pilots), zeros("i", 4 * pilots), zeros("i", pilots), zeros("d", pilots + 1), zeros("i", pilots + 1),
        zeros("d", 4 * pilots + 8), zeros("i", 4 * pilots + 8),
    )  # fmt: skip
    cpu = time.process_time() - since
    least = kernel.bound(SHAPES[workload], first, many, pilots, seed, luck, zeros("d", first))
    return {
        "workload": workload, "jobs": many, "pilots": pilots, "condition": condition, "seed": seed,
        "makespan": makespan, "bound": least, "hit ratio": hits / reads, "storage reads": from_storage, "reads": reads,
        "evicted": evicted, "events": events, "cpu": round(cpu, 3), "jobs a second": round(many / max(cpu, 1e-9)),
        "claims a second": many / makespan, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }  # fmt: skip


def off(quick_run: dict[str, Any], full: dict[str, Any]) -> dict[str, float]:
    """How far a run is from that of the servers' own code."""
    return {
        "makespan": quick_run["makespan"] / full["makespan"] - 1,
        "hit ratio": quick_run["hit ratio"] - full["hit ratio"],
        "storage reads": (quick_run["storage reads"] - full["storage reads"]) / quick_run["reads"],
    }


def agrees(fields: dict[str, float], jobs: int) -> bool:
    reads = HITS if jobs > FEW else HITS_OF_FEW
    return (
        abs(fields["makespan"]) <= MAKESPAN
        and abs(fields["hit ratio"]) <= reads
        and abs(fields["storage reads"]) <= reads
    )


def compiled(args: argparse.Namespace) -> bool:
    """The same in a process that has Numba."""
    words = ["uv", "run", "--no-project", "--python", sys.executable, "--with", "numba", "--with", "typing-extensions"]
    asked = {
        "jobs": args.jobs,
        "pilots": args.pilots,
        "workloads": args.workloads,
        "condition": args.condition,
        "no_keep": args.no_keep,
    }
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "FORESTAY_BENCH_COMMAND": command(),
    }
    done = subprocess.run(
        [*words, "python", "-m", "bench.pilots.scale_arrays", json.dumps(asked)], cwd=ROOT, env=environment, check=False
    )
    return done.returncode == 0


def run(made: tuple[Kernel, Any], asked: dict[str, Any]) -> bool:
    """All sizes; whether it agrees wherever both were run."""
    rows, agreed = [], True
    simulate(made, "W1", 1_000, 40, asked["condition"], 1)  # compiles
    for jobs, pilots in sizes(asked["jobs"], asked["pilots"]):
        for workload in asked["workloads"].split(","):
            row = simulate(made, workload, jobs, pilots, asked["condition"], 1)
            if jobs <= HELD_AGAINST:
                full = once(workload, jobs, pilots, asked["condition"], 1)
                row["off"] = off(row, full)
                row["agrees"] = agrees(row["off"], jobs)
                agreed = agreed and row["agrees"]
            rows.append(row)
            far = " ".join(f"{name} {value:+.4f}" for name, value in row.get("off", {}).items())
            sys.stderr.write(
                f"  {workload} {row['jobs']:>9} jobs {pilots:>6} pilots {row['cpu']:>8.1f} s CPU {row['jobs a second']:>8}/s {row['memory'] >> 20:>5} MiB"
                f"  × {row['makespan'] / row['bound']:.4f}  hits {row['hit ratio']:.4f}  {far}\n"
            )
    figures = {"agree": agreed, "load": os.getloadavg()[0], "rows": rows}
    if not asked["no_keep"]:
        keep("pilots_scale_arrays", [], figures)
    print(
        f"simulation in arrays: {'agrees' if agreed else 'DOES NOT AGREE'} with the servers' own code up to {HELD_AGAINST:,} jobs"
    )
    return agreed


if __name__ == "__main__":
    sys.exit(0 if run(quick(), json.loads(sys.argv[1])) else 1)
