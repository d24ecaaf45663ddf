"""Benchmark 11: one flow of very many no-ops and one job that gathers them, beside Snakemake and a graph of Dask's.

    just bench flow_beside --peers snakemake,dask --jobs 1000,10000 --build 100000

*Accepted* is until the work is known and may begin: a flow's documents are stored; Snakemake has planned everything (`--dry-run`); Dask's graph is with the scheduler.
*Ended* is until the last has ended on two workers: a real pilot and Snakemake start a process for each job, Dask calls a function. With `--build` only acceptance is
measured (Dask's whole run is, it cannot be told apart), and what takes longer than `--within` is given up. The most memory is that of the largest process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.flow_scale import accepted
from bench.harness import keep, leave, pressure
from bench.peers.peer import Peer, TooLong, environment_of
from bench.whole_site import WholeSite, whole_site
from forestay.adapters.private_file import write_private
from forestay.apps.compose.stores import open_stores

WORKERS = 2
GOAL = 50.0
"""Times as fast accepted as by Snakemake, at the size of `--build`."""
FLOW = """
forestay: 1
name: beside
tasks:
  each:
    command: ["true"]
    scatter: {{n: {{range: [0, {jobs}]}}}}
  last:
    command: ["true"]
    after: [each]
"""
SNAKEFILE = """
rule last:
    input: expand("out/{{n}}", n=range({jobs}))
rule each:
    output: touch("out/{{n}}")
    shell: "true"
"""
Figures = dict[str, float | None]
"""`accepted`, `ended` (seconds; None: given up), `peak` (bytes)."""


async def forestay(site: WholeSite, jobs: int, within: float, *, run: bool) -> Figures:
    store = open_stores(site.store).jobs
    await store.open()
    since = time.monotonic()
    flow_run = await site.start_run(FLOW.format(jobs=jobs))
    figures: Figures = {"accepted": await accepted(store, flow_run, jobs, since), "ended": None}
    await store.close()
    if run:
        pilot = real_pilot(site)
        try:
            while time.monotonic() - since < within:
                if (await site.get(f"/v1/runs/{flow_run}", "viewer"))["ended"] is not None:
                    figures["ended"] = time.monotonic() - since
                    break
                await asyncio.sleep(0.2)
        finally:
            pilot.terminate()
            pilot.wait(60)
    return figures | {"peak": float(max(site.peaks().values()))}


def real_pilot(site: WholeSite) -> subprocess.Popen[bytes]:
    secret = site.folder / "enrol"
    write_private(secret, site.token("enrol"))
    words = [sys.executable, "-m", "forestay", "pilot", "--server", site.urls[0], "--token-file", str(secret)]
    words += ["--slots", str(WORKERS), "--cpus", "64", "--work", str(site.folder / "work")]
    with Path(site.folder / "pilot.log").open("ab") as log:
        return subprocess.Popen([*words, "--outputs", str(site.folder / "outputs")], stdout=log, stderr=log)


async def snakemake(jobs: int, within: float, *, run: bool) -> Figures:
    folder = Path(tempfile.mkdtemp(prefix="forestay-snakemake-"))
    try:
        (folder / "Snakefile").write_text(SNAKEFILE.format(jobs=jobs))
        words = [*environment_of("snakemake"), "snakemake", "--directory", str(folder), "-s", str(folder / "Snakefile")]
        words += ["--cores", str(WORKERS), "--quiet", "all", "--nocolor"]
        planned, peak = await asyncio.to_thread(_timed, [*words, "--dry-run"], folder, within)
        ended = None
        if run and planned is not None:
            ended, other = await asyncio.to_thread(_timed, words, folder, within)
            peak = max(peak, other)
        return {"accepted": planned, "ended": ended, "peak": float(peak)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _timed(words: list[str], folder: Path, within: float) -> tuple[float | None, int]:
    """Seconds that a command took, or None if it was given up; and the most memory that one of its processes had."""
    since = time.monotonic()
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        took = time.monotonic() - since
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise SystemExit(f"{' '.join(words)}: {(folder / 'log').read_text()[-2000:]}")
            return took, used.ru_maxrss * 1024
        if took > within:
            os.killpg(process.pid, signal.SIGKILL)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = -9
            return None, used.ru_maxrss * 1024
        time.sleep(0.02)


async def dask(jobs: int, within: float) -> Figures:
    with Peer("dask", "dask_graph", str(WORKERS)) as peer:
        await asyncio.to_thread(peer.ask, "graph", 100)
        try:
            return dict(await asyncio.to_thread(peer.ask, "graph", jobs, within=within))
        except TooLong:
            return {"accepted": None, "ended": None, "peak": None}


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", default="")
    parser.add_argument("--jobs", default="1000,10000")
    parser.add_argument("--build", default="100000", help="sizes of which only acceptance is measured; empty: none")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--within", type=float, default=300.0)
    parser.add_argument(
        "--shared", action="store_true", help="PostgreSQL and Temporal of the environment, not own ones"
    )
    asked = parser.parse_args()
    sizes = [(int(part), True) for part in asked.jobs.split(",") if part]
    sizes += [(int(part), False) for part in asked.build.split(",") if part]
    peers = [name for name in asked.peers.split(",") if name]
    rows: list[dict[str, object]] = []
    for jobs, run in sizes:
        for number in range(asked.rounds):
            for name in ["forestay", *peers]:
                if name == "forestay":
                    async with whole_site(own=not asked.shared) as site:
                        await site.start()
                        found_forestay = await forestay(site, jobs, asked.within, run=run)
                elif name == "dask":
                    found_forestay = await dask(jobs, asked.within)
                else:
                    found_forestay = await snakemake(jobs, asked.within, run=run)
                row = {"system": name, "jobs": jobs, "run": run, "round": number, **found_forestay}
                rows.append(row | {"load": round(os.getloadavg()[0], 1), "pressure": pressure()})
                print(rows[-1], flush=True)
    report(asked, rows)


def report(asked: argparse.Namespace, rows: list[dict[str, object]]) -> None:
    figures = {"rows": rows, "within": asked.within, "load": [row["load"] for row in rows]}
    print(f"raw runs in {keep('flow_beside', [], figures)}", file=sys.stderr)
    largest = max(int(str(row["jobs"])) for row in rows)
    took = {str(row["system"]): row["accepted"] for row in rows if row["jobs"] == largest}
    known = {name: float(str(entry)) for name, entry in took.items() if entry is not None}
    ratio = known.get("snakemake", asked.within) / known["forestay"] if "snakemake" in took else 0.0
    least = "" if "snakemake" in known else "at least "
    text = f"{largest} jobs accepted in {known['forestay']:.1f} s"
    text += f", {least}{ratio:.1f} × as fast as by Snakemake (goal ≥ {GOAL:g})" if "snakemake" in took else ""
    print(f"flow_beside: {text}")
    leave(reached=ratio >= GOAL or "snakemake" not in took)


if __name__ == "__main__":
    asyncio.run(main())
