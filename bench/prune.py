"""Jobs that ended long ago are removed: how many a second, beside how many the same store takes in.

    just bench prune
    just bench prune --store opensearch --jobs 50000

In turn so many jobs that are over are written, each with a record beside it, as servers write them in batches; and removed by `JobPruner`, with no pause between its writes. The store is empty but for `--beside` jobs
that stay. The goal is what 10⁷ jobs a day come to in a second, four times: a reconciler rests for half of the time, and what is kept for days must be made up for in hours.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.contract.examples import job, record
from tests.unit.apps.server.store_room import store_room

from bench.harness import Run, keep, leave, measure, paired, rates
from forestay.adapters.system.clock import SystemClock
from forestay.apps.compose.stores import open_stores
from forestay.domain.jobs.job_document import State
from forestay.ports.jobs.job_store import DocumentChange, JobStore, Written
from forestay.services.operations.job_pruner import JobPruner
from forestay.services.operations.retention import DAY

GOAL = 4 * 10**7 / 86_400
BULK = 500


async def write(store: JobStore, name: str, count: int, changed: int) -> int:
    for start in range(0, count, BULK):
        names = [f"{name}-{number}" for number in range(start, min(count, start + BULK))]
        await store.add_records(
            [record(f"r-{other_name}", kind="log", job=other_name, at=changed) for other_name in names]
        )
        results = await store.write(
            [DocumentChange(job(identifier, state=State.COMPLETED, changed=changed), None) for identifier in names]
        )
        assert all(isinstance(write_result, Written) for write_result in results)
    return count


async def main(args: argparse.Namespace) -> bool:
    runs: list[Run] = []
    now = time.time_ns() // 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        async with store_room(args.store, Path(folder)) as url:
            stores = open_stores(url)
            await stores.jobs.open()
            service = JobPruner(stores.jobs, stores.documents, stores.pilots, SystemClock())
            await write(stores.jobs, "stays", args.beside, now)

            async def pruned() -> int:
                return (await service.prune(now - 30 * DAY)).removed

            for number in range(args.rounds + 1):
                name = f"old-{number}"
                run = await measure("write", partial(write, stores.jobs, name, args.jobs, now - 31 * DAY), {})
                await stores.jobs.refresh()
                other = await measure("prune", pruned, {})
                assert other.operations == args.jobs, f"{other.operations} of {args.jobs} went"
                if number:  # the first makes caches warm
                    runs += [run, other]
            await stores.jobs.close()
    removed = sorted(rates(runs, "prune"))
    figures = {
        "store": args.store,
        "jobs": args.jobs,
        "beside": args.beside,
        "removed_each_second": round(removed[len(removed) // 2]),
        "removed_to_written": paired(rates(runs, "prune"), rates(runs, "write")),
    }
    print(
        f"removed {figures['removed_each_second']} a second (goal {GOAL:.0f}), beside those written: {figures['removed_to_written']}"
    )
    keep(f"prune-{args.store}", runs, figures)
    return removed[len(removed) // 2] >= GOAL


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgresql", "opensearch"), default="postgresql")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--beside", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    leave(reached=asyncio.run(main(parser.parse_args())))
