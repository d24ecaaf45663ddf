"""How fast the SQL stores are, on a new SQLite file and on a new schema of PostgreSQL.

    python -m bench.sql_adapter --jobs 10000 100000

For each number of available jobs: creating them in bulks, searching windows of 2,000 candidates of one lane (for a
server that owns all slots, and for one of four servers), counting by lane, and version-checked claims and ends in bulks
of 500, one after another and four at a time. PostgreSQL is found by FORESTAY_TEST_POSTGRES. Figures are printed last.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

from sqlalchemy import text

from bench.opensearch_adapter import BULK, CREATE_BULK, OWNERS, claimed, ended, make_jobs, median_ms, queue
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.jobs.hash_slots import own_hash_slots
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.ports.jobs.job_store import DocumentChange, JobQuery, Stored, Version, Written

WINDOW = 2_000
CLAIMS = 4_000


@asynccontextmanager
async def new_store(kind: str) -> AsyncIterator[SqlJobStore]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(dir=".") as folder:
            store = SqlJobStore(f"sqlite:///{folder}/jobs.db")
            await store.open()
            yield store
            await store.close()
        return
    schema = f"bench_{uuid4().hex}"
    store = SqlJobStore(os.environ["FORESTAY_TEST_POSTGRES"], schema=schema)
    await store.open()
    try:
        yield store
    finally:
        await store.database.run(text(f"DROP SCHEMA {schema} CASCADE"))
        await store.close()


async def create(store: SqlJobStore, count: int) -> tuple[float, float]:
    """Seconds and CPU-seconds of this process that creating the jobs took."""
    spent = cpu = 0.0
    for first in range(0, count, CREATE_BULK):
        changes = [DocumentChange(job, None) for job in make_jobs(first, min(CREATE_BULK, count - first))]
        begun, burnt = time.perf_counter(), time.process_time()
        results = await store.write(changes)
        spent, cpu = spent + time.perf_counter() - begun, cpu + time.process_time() - burnt
        assert all(isinstance(result, Written) for result in results), results[0]
    return spent, cpu


async def write_all(
    store: SqlJobStore, changes: Sequence[DocumentChange], at_once: int
) -> tuple[list[tuple[JobDocument, Version]], float, float]:
    """Write in bulks; what was written, the seconds and the CPU-seconds of this process."""
    bulks = [changes[first : first + BULK] for first in range(0, len(changes), BULK)]
    written: list[tuple[JobDocument, Version]] = []

    async def work() -> None:
        while bulks:
            bulk = bulks.pop()
            for change, result in zip(bulk, await store.write(bulk), strict=True):
                assert isinstance(result, Written), result
                written.append((change.document, result.version))

    begun, burnt = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return written, time.perf_counter() - begun, time.process_time() - burnt


async def take(store: SqlJobStore, owner: str) -> Sequence[Stored]:
    return (await store.search(queue(owner, None), sort="rank", limit=CLAIMS)).jobs


async def run(kind: str, count: int) -> list[str]:
    async with new_store(kind) as store:
        lines: list[str] = []

        def tell(what: str, items: int, spent: float, cpu: float) -> None:
            each = 1e6 * cpu / items
            lines.append(
                f"{kind:<9} {count:>8,} jobs  {what:<28} {items / spent:>8,.0f}/s   client {each:6.1f} µs each"
            )

        tell(f"create, bulks of {CREATE_BULK}", count, *await create(store, count))
        quarter = own_hash_slots("a", "abcd")
        for what, slots in (("window, all slots", None), ("window, a quarter of them", quarter)):
            first = await store.search(queue(OWNERS[0], slots), sort="rank", limit=WINDOW)
            for place, cursor in (("first", None), ("second", first.cursor)):
                if place == "first" or cursor is not None:
                    milliseconds = await median_ms(
                        lambda slots=slots, cursor=cursor: store.search(  # type: ignore[misc]
                            queue(OWNERS[0], slots), sort="rank", limit=WINDOW, cursor=cursor
                        )
                    )
                    lines.append(f"{kind:<9} {count:>8,} jobs  {what}, {place} page: {milliseconds:.1f} ms")
        available = JobQuery(states=frozenset({State.AVAILABLE}), held=False)
        milliseconds = await median_ms(lambda: store.count(available, by="lane"))
        lines.append(f"{kind:<9} {count:>8,} jobs  count of available jobs by lane: {milliseconds:.1f} ms")
        for owner, at_once in ((OWNERS[1], 1), (OWNERS[2], 4)):
            changes = [claimed(stored) for stored in await take(store, owner)]
            written, spent, cpu = await write_all(store, changes, at_once)
            tell(f"claim, bulks of {BULK}, {at_once} at once", len(changes), spent, cpu)
            _, spent, cpu = await write_all(store, [ended(*pair) for pair in written], at_once)
            tell(f"end, bulks of {BULK}, {at_once} at once", len(changes), spent, cpu)
        return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[10_000])
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgres"], choices=["sqlite", "postgres"])
    arguments = parser.parse_args()
    lines = [line for kind in arguments.stores for count in arguments.jobs for line in asyncio.run(run(kind, count))]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
