"""Jobs that ended long ago are removed: how many a second, beside how many the same store takes in.

    just bench prune
    just bench prune --store opensearch --jobs 50000
    just bench prune --what incidents

In turn so many jobs that are over are written, each with a record beside it, as servers write them in batches; and removed by `JobPruner`, with no pause between its writes. The store is empty but for `--beside` jobs
that stay. With `--what` the same is done with closed incidents, each with a decision, or with idempotency keys or specifications; the goal is then that for their share of the jobs. The goal is what 10⁷ jobs a day come to in a second, four times: a reconciler rests for half of the time, and what is kept for days must be made up for in hours.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.contract.examples import job, record, specification
from tests.contract.test_incident_store import incident
from tests.unit.apps.server.store_room import store_room

from bench.harness import Run, keep, leave, measure, paired, rates
from forestay.adapters.system.clock import SystemClock
from forestay.apps.compose.stores import Stores, open_stores
from forestay.domain.exceptions.incidents.incident import Decision, IncidentState, status_of
from forestay.domain.jobs.job_document import State
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.jobs.job_store import DocumentChange, JobStore, Written
from forestay.services.operations.batch_pause import BatchPause
from forestay.services.operations.incident_pruner import IncidentPruner
from forestay.services.operations.job_pruner import JobPruner
from forestay.services.operations.record_pruner import RecordPruner
from forestay.services.operations.retention import DAY
from forestay.services.operations.specification_pruner import SpecificationPruner

GOAL = 4 * 10**7 / 86_400
SHARES = {"jobs": 1.0, "incidents": 0.05, "keys": 0.01, "specifications": 0.01}
"""How many there are of each for a job."""
BULK = 500
Write = Callable[[str, int, int], Awaitable[int]]
"""Writes so many of a name, last changed at a time."""


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


async def write_incidents(store: IncidentStore, name: str, count: int, at: int) -> int:
    for start in range(0, count, BULK):
        made = [
            incident(f"{name}-{number}", at=at, run="", job="") for number in range(start, min(count, start + BULK))
        ]
        closed = [replace(status_of(entry), state=IncidentState.COMPLETE, due=None) for entry in made]
        await store.add_incidents(list(zip(made, closed, strict=True)))
        await store.add_decisions(
            [Decision(entry.id, 1, entry.tenant, at, "retry", "default policy") for entry in made]
        )
    return count


async def write_keys(store: JobStore, name: str, count: int, at: int) -> int:
    for start in range(0, count, BULK):
        keys = [f"{name}-{number}" for number in range(start, min(count, start + BULK))]
        body = {"digest": "0" * 64, "jobs": 100, "by": "ada"}
        await store.add_records(
            [record(f"key:{key}", kind="key", job="", at=at, body={**body, "key": key}) for key in keys]
        )
    return count


async def write_specifications(store: JobStore, name: str, count: int, at: int) -> int:
    for start in range(0, count, BULK):
        numbers = range(start, min(count, start + BULK))
        await store.put_specifications([specification(name=f"{name}-{number}") for number in numbers], used=at)
    return count


def arms(what: str, stores: Stores, now: int) -> tuple[Write, Callable[[], Awaitable[int]]]:
    """What writes, and what removes."""
    clock = SystemClock()
    before, pause = now - 30 * DAY, BatchPause(clock, 0.0)
    if what == "incidents":
        pruner = IncidentPruner(stores.incidents, stores.jobs, stores.documents, clock)
        return partial(write_incidents, stores.incidents), lambda: pruner.prune(before, pause)
    if what == "keys":
        records = RecordPruner(stores.jobs, stores.documents, stores.incidents, stores.pilots, clock)
        return partial(write_keys, stores.jobs), lambda: records.prune_keys(before, pause)
    if what == "specifications":
        specifications = SpecificationPruner(stores.jobs, clock)
        return partial(write_specifications, stores.jobs), lambda: specifications.prune(before, pause)
    service = JobPruner(stores.jobs, stores.documents, stores.pilots, clock)

    async def pruned() -> int:
        return (await service.prune(before)).removed

    return partial(write, stores.jobs), pruned


async def main(args: argparse.Namespace) -> bool:
    runs: list[Run] = []
    now = time.time_ns() // 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        async with store_room(args.store, Path(folder)) as url:
            stores = open_stores(url)
            await stores.jobs.open()
            written, pruned = arms(args.what, stores, now)
            await written("stays", args.beside, now)

            for number in range(args.rounds + 1):
                name = f"old-{number}"
                run = await measure("write", partial(written, name, args.jobs, now - 31 * DAY), {})
                await stores.jobs.refresh()
                other = await measure("prune", pruned, {})
                assert other.operations == args.jobs, f"{other.operations} of {args.jobs} went"
                if number:  # the first makes caches warm
                    runs += [run, other]
            await stores.jobs.close()
    removed = sorted(rates(runs, "prune"))
    figures = {
        "store": args.store,
        "what": args.what,
        "jobs": args.jobs,
        "beside": args.beside,
        "removed_each_second": round(removed[len(removed) // 2]),
        "removed_to_written": paired(rates(runs, "prune"), rates(runs, "write")),
    }
    goal = GOAL * SHARES[args.what]
    print(
        f"removed {figures['removed_each_second']} a second (goal {goal:.0f}), beside those written: {figures['removed_to_written']}"
    )
    keep(f"prune-{args.store}" if args.what == "jobs" else f"prune-{args.what}-{args.store}", runs, figures)
    return removed[len(removed) // 2] >= goal


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgresql", "opensearch"), default="postgresql")
    parser.add_argument("--what", choices=tuple(SHARES), default="jobs")
    parser.add_argument("--jobs", type=int, default=20_000, help="how many of what is removed")
    parser.add_argument("--beside", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    leave(reached=asyncio.run(main(parser.parse_args())))
