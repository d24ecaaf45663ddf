"""The experiments on pilots and caches.

    just bench pilots simulate            # W1, W2, W3 under every condition, every arm, every way to submit, at the paper's size
    just bench pilots simulate --seeds 3
    just bench pilots figures             # figures 6 to 12 for the docs, from the rows that simulate left
    just bench pilots real                # real pilots and files at a small size, held against the bound and the simulation
    just bench pilots scale               # 10³ to 10⁶ jobs on up to 10⁵ pilots; --compiled is quicker
    just bench pilots arrays              # 10³ to 10⁷ jobs on up to 10⁵ pilots, held against scale

Each writes its rows to bench/results and ends with an error when a goal is not reached.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from bench.harness import keep, leave
from bench.pilots import experiments, figures, real, scale, scale_arrays
from bench.pilots.real_site import REAL_ARMS


def simulate(seeds: int, *, kept: bool) -> bool:
    """The paper's size: 120 pilots on 30 hosts."""
    since = time.perf_counter()

    def said(one: experiments.Row) -> None:
        print(
            f"  {one.workload} {one.condition} {one.submission:<10} {one.arm:<24} {one.makespan.mean:>7.0f} s ± {one.makespan.deviation:<6.0f}"
            f" × {one.over_bound.mean:.3f} (at most {one.over_bound.most:.3f})  hits {one.hit_ratio.mean:.3f}  stage-in {one.stage_in.mean:.1f} s",
            file=sys.stderr,
        )

    rows = experiments.grid(range(1, seeds + 1), said)
    tier0 = experiments.tier0_rows(range(1, seeds + 1))
    for one in tier0:
        said(one)
    found = experiments.goals(rows)
    told = {
        "pilots": experiments.HOSTS * experiments.SLOTS,
        "hosts": experiments.HOSTS,
        "seeds": seeds,
        "seconds": round(time.perf_counter() - since, 1),
        "goals": found,
        "rows": experiments.plain(rows),
        "tier0": experiments.plain(tier0),
        "running": experiments.timelines(1),
    }
    where = keep("pilots_simulation", [], told) if kept else "nothing kept"
    print(f"goals {'reached' if found['reached'] else 'NOT reached'}; {where}")
    return bool(found["reached"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.pilots", description="Experiments on pilots and caches.")
    what = parser.add_subparsers(dest="what", required=True)
    one = what.add_parser("simulate", help="every arm at the paper's size")
    one.add_argument("--seeds", type=int, default=40)
    one.add_argument("--no-keep", action="store_true", help="write no results")
    one = what.add_parser("figures", help="draw figures 6 to 12 from the last simulation")
    one.add_argument("--check", action="store_true", help="write nothing; say whether they are up to date")
    one = what.add_parser("scale", help="up to 10⁵ pilots and 10⁷ jobs")
    one.add_argument("--jobs", type=int, default=1_000_000)
    one.add_argument("--pilots", type=int, default=100_000)
    one.add_argument("--workloads", default="W1,W2,W3")
    one.add_argument("--condition", default="d2f2")
    one.add_argument("--compiled", action="store_true", help="compile the same files first, and compare")
    one.add_argument("--no-keep", action="store_true", help="write no results")
    one = what.add_parser("arrays", help="the simulation in arrays: 10⁵ pilots and 10⁷ jobs")
    one.add_argument("--jobs", type=int, default=10_000_000)
    one.add_argument("--pilots", type=int, default=100_000)
    one.add_argument("--workloads", default="W1,W2,W3")
    one.add_argument("--condition", default="d2f2")
    one.add_argument("--plain", action="store_true", help="without a compiler")
    one.add_argument("--no-keep", action="store_true", help="write no results")
    one = what.add_parser("real", help="real pilots, real files and a storage server at a small size")
    one.add_argument("--seeds", type=int, default=1)
    one.add_argument("--arms", default=",".join(REAL_ARMS))
    one.add_argument("--workloads", default="W1,W2,W3")
    one.add_argument("--conditions", default="d2f2,d3f3", help="d2f2 is for look-ahead alone")
    one.add_argument("--computing", type=float, default=4.0, metavar="S", help="mean seconds of a payload")
    one.add_argument("--name", default="pilots_real", help="of the file with the results")
    one.add_argument("--no-keep", action="store_true", help="write no results")
    given = parser.parse_args()
    if given.what == "real":
        leave(reached=asyncio.run(real.measure(given)))
    if given.what == "scale":
        leave(reached=scale.run(given))
    if given.what == "arrays":
        leave(
            reached=scale_arrays.run(scale_arrays.plain(), vars(given)) if given.plain else scale_arrays.compiled(given)
        )
    if given.what == "figures":
        sys.exit(0 if figures.write(print, check=given.check) else 1)
    leave(reached=simulate(given.seeds, kept=not given.no_keep))


if __name__ == "__main__":
    main()
