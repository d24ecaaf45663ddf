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

    def said(row: experiments.Row) -> None:
        print(
            f"  {row.workload} {row.condition} {row.submission:<10} {row.arm:<24} {row.makespan.mean:>7.0f} s ± {row.makespan.deviation:<6.0f}"
            f" × {row.over_bound.mean:.3f} (at most {row.over_bound.most:.3f})  hits {row.hit_ratio.mean:.3f}  stage-in {row.stage_in.mean:.1f} s",
            file=sys.stderr,
        )

    rows = experiments.grid(range(1, seeds + 1), said)
    tier0 = experiments.tier0_rows(range(1, seeds + 1))
    for other_row in tier0:
        said(other_row)
    goals = experiments.goals(rows)
    figures_data = {
        "pilots": experiments.HOSTS * experiments.SLOTS,
        "hosts": experiments.HOSTS,
        "seeds": seeds,
        "seconds": round(time.perf_counter() - since, 1),
        "goals": goals,
        "rows": experiments.plain(rows),
        "tier0": experiments.plain(tier0),
        "running": experiments.timelines(1),
    }
    where = keep("pilots_simulation", [], figures_data) if kept else "nothing kept"
    print(f"goals {'reached' if goals['reached'] else 'NOT reached'}; {where}")
    return bool(goals["reached"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.pilots", description="Experiments on pilots and caches.")
    what = parser.add_subparsers(dest="what", required=True)
    argument_parser = what.add_parser("simulate", help="every arm at the paper's size")
    argument_parser.add_argument("--seeds", type=int, default=40)
    argument_parser.add_argument("--no-keep", action="store_true", help="write no results")
    argument_parser = what.add_parser("figures", help="draw figures 6 to 12 from the last simulation")
    argument_parser.add_argument("--check", action="store_true", help="write nothing; say whether they are up to date")
    argument_parser = what.add_parser("scale", help="up to 10⁵ pilots and 10⁷ jobs")
    argument_parser.add_argument("--jobs", type=int, default=1_000_000)
    argument_parser.add_argument("--pilots", type=int, default=100_000)
    argument_parser.add_argument("--workloads", default="W1,W2,W3")
    argument_parser.add_argument("--condition", default="d2f2")
    argument_parser.add_argument("--compiled", action="store_true", help="compile the same files first, and compare")
    argument_parser.add_argument("--no-keep", action="store_true", help="write no results")
    argument_parser = what.add_parser("arrays", help="the simulation in arrays: 10⁵ pilots and 10⁷ jobs")
    argument_parser.add_argument("--jobs", type=int, default=10_000_000)
    argument_parser.add_argument("--pilots", type=int, default=100_000)
    argument_parser.add_argument("--workloads", default="W1,W2,W3")
    argument_parser.add_argument("--condition", default="d2f2")
    argument_parser.add_argument("--plain", action="store_true", help="without a compiler")
    argument_parser.add_argument("--no-keep", action="store_true", help="write no results")
    argument_parser = what.add_parser("real", help="real pilots, real files and a storage server at a small size")
    argument_parser.add_argument("--seeds", type=int, default=1)
    argument_parser.add_argument("--arms", default=",".join(REAL_ARMS))
    argument_parser.add_argument("--workloads", default="W1,W2,W3")
    argument_parser.add_argument("--conditions", default="d2f2,d3f3", help="d2f2 is for look-ahead alone")
    argument_parser.add_argument("--computing", type=float, default=4.0, metavar="S", help="mean seconds of a payload")
    argument_parser.add_argument("--name", default="pilots_real", help="of the file with the results")
    argument_parser.add_argument("--no-keep", action="store_true", help="write no results")
    args = parser.parse_args()
    if args.what == "real":
        leave(reached=asyncio.run(real.measure(args)))
    if args.what == "scale":
        leave(reached=scale.run(args))
    if args.what == "arrays":
        leave(reached=scale_arrays.run(scale_arrays.plain(), vars(args)) if args.plain else scale_arrays.compiled(args))
    if args.what == "figures":
        sys.exit(0 if figures.write(print, check=args.check) else 1)
    leave(reached=simulate(args.seeds, kept=not args.no_keep))


if __name__ == "__main__":
    main()
