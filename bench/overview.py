"""The overview over a full store: how long its answer takes for each span, and what each part of it takes.

    just bench overview
    just bench overview --jobs 1000000 --incidents 100000 --store opensearch

One tenant has as many ended jobs and incidents as are asked for, spread over 30 days; they are copies of a real one, made inside the store or sent to it in bulk. Every answer is a new look at the store: what servers
remember for 15 seconds is forgotten between. The first look of a server is told apart from later ones, which know the steps that are over.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import text
from tests.contract.examples import job
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.apps.server.store_room import store_room

from bench.harness import keep, leave
from bench.inbox import CAUSES, COPIED, OWNERS
from forestay.adapters.opensearch.incident_store import OpenSearchIncidentStore
from forestay.adapters.opensearch.job_store import OpenSearchJobStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.tables import jobs, statuses
from forestay.apps.compose.stores import Stores, open_stores
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident, status_of
from forestay.domain.jobs.job_document import State
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.operations.usage_history import HistorySpan

TENANT = "many"
GOAL = 1.0
"""Seconds of an answer."""
MONTH = 30 * 86_400_000
BULK = 5_000
STATES = (
    "completed",
    "completed",
    "completed",
    "completed",
    "completed",
    "completed",
    "completed",
    "failed",
    "cancelled",
)


async def copy_rows(store: SqlJobStore, count: int, incidents: int, now: int) -> None:
    """So many jobs that are over and incidents that were answered, made by the store from one of each."""
    quote = store.database.dialect.writer.dialect.identifier_preparer.quote
    for table, many, spread in ((jobs, count, ("created", "changed")), (statuses, incidents, ("at", "changed"))):
        when = f":now - CAST(n AS BIGINT) * {MONTH} / {many}"
        picks = dict.fromkeys(spread, when) | {"id": "'copy-' || n", "state": "state"}
        if table is jobs:
            picks["state"] = (
                f"RUN n % {len(STATES)} "
                + " ".join(f"WHEN {n} THEN '{state}'" for n, state in enumerate(STATES))
                + " END"
            )
        else:
            picks["cause"] = (
                f"RUN n % {len(CAUSES)} "
                + " ".join(f"WHEN {n} THEN '{cause}'" for n, cause in enumerate(CAUSES))
                + " END"
            )
        columns = [column.name for column in table.columns]
        into, out = ", ".join(map(quote, columns)), ", ".join(picks.get(column, quote(column)) for column in columns)
        for start in range(0, many, COPIED):
            end = min(many, start + COPIED) - 1
            await store.database.run(
                text(
                    "WITH RECURSIVE numbers(n) AS (SELECT CAST(:start AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < :end) "  # noqa: S608
                    f"INSERT INTO {table.name} ({into}) SELECT {out} FROM {table.name}, numbers WHERE id = 'first'"
                ).bindparams(start=start, end=end, now=now)
            )
    await store.database.run(text("ANALYZE"))


async def send_rows(store: OpenSearchJobStore, count: int, incidents: int, now: int) -> None:
    """The same, sent in bulk: the body of the first, with other times."""
    for kind, many, spread in (("jobs", count, ("created", "changed")), ("statuses", incidents, ("at", "changed"))):
        (hit,) = await store.cluster.get(kind, ["first"])
        body: dict[str, Any] = hit["_source"]

        def lines(
            start: int,
            body: dict[str, Any] = body,
            kind: str = kind,
            many: int = many,
            spread: tuple[str, ...] = spread,
        ) -> Iterator[tuple[str, None, bytes]]:
            for n in range(start, min(many, start + BULK)):
                changed = dict.fromkeys(spread, now - n * MONTH // many) | {"id": f"copy-{n}"}
                changed |= {"state": STATES[n % len(STATES)]} if kind == "jobs" else {"cause": CAUSES[n % len(CAUSES)]}
                yield f"copy-{n}", None, orjson.dumps(body | changed)

        for start in range(0, many, BULK):
            await store.cluster.write(kind, list(lines(start)))
    await store.refresh()


async def fill(stores: Stores, args: argparse.Namespace) -> None:
    now = time.time_ns() // 1_000_000
    await stores.jobs.write([DocumentChange(job("first", tenant=TENANT, state=State.COMPLETED), None)])
    first = Incident("first", TENANT, "ada", ExceptionType.ABORT, now, cause="memory", context={})
    await stores.incidents.add_incidents([(first, status_of(first))])
    # The newest as they are, each of a job of its own: what came of them is read.
    for start in range(0, 2_500, 500):
        made = [
            Incident(
                f"new-{n}", TENANT, f"owner{n % OWNERS:03}", ExceptionType.ABORT, now - 500 + n // 10, job=f"copy-{n}",
                cause=CAUSES[n % len(CAUSES)], context={},
            )
            for n in range(start, start + 500)
        ]  # fmt: skip
        await stores.incidents.add_incidents([(incident, status_of(incident)) for incident in made])
    if isinstance(stores.jobs, SqlJobStore):
        await copy_rows(stores.jobs, args.jobs, args.incidents, now)
    elif isinstance(stores.jobs, OpenSearchJobStore) and isinstance(stores.incidents, OpenSearchIncidentStore):
        await send_rows(stores.jobs, args.jobs, args.incidents, now)


async def ask(server: RunningServer, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of the answers of each span: the first of this server, and the median of later ones; and this process's CPU for those."""
    person = server.person("viewer", tenant=TENANT)
    past = server.services.usage_history
    (await person.get("/v1/inbox")).raise_for_status()  # opens connections
    result: dict[str, dict[str, float]] = {}
    for span in reversed(HistorySpan):
        taken, worked = [], []
        for _ in range(rounds + 1):
            past.forget()
            begun, before = time.perf_counter(), time.process_time()
            answer = await person.get("/v1/overview", params={"span": span.value}, timeout=120)
            taken.append(1000 * (time.perf_counter() - begun))
            worked.append(1000 * (time.process_time() - before))
            answer.raise_for_status()
        result[span.value] = {
            "first_ms": round(taken[0], 1),
            "first_cpu_ms": round(worked[0], 1),
            "p50_ms": round(statistics.median(taken[1:]), 1),
            "cpu_ms": round(statistics.median(worked[1:]), 1),
        }
        print(f"{span.value}: {result[span.value]}")
    return result


async def main(args: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        async with store_room(args.store, folder) as url:
            stores = open_stores(url)
            await stores.jobs.open()
            begun = time.monotonic()
            await fill(stores, args)
            print(f"{args.jobs:,} jobs and {args.incidents:,} incidents after {time.monotonic() - begun:.0f} s")
            await stores.jobs.close()
            async with Domain(url, folder).server() as server:
                spans = await ask(server, args.rounds)
    figures = {
        "store": args.store,
        "jobs": args.jobs,
        "incidents": args.incidents,
        "load": os.getloadavg()[0],
        "spans": spans,
    }
    keep(f"overview-{args.store}", [], figures)
    return all(max(span["first_ms"], span["p50_ms"]) <= GOAL * 1000 for span in spans.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgresql", "opensearch"), default="sqlite")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--incidents", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    leave(reached=asyncio.run(main(parser.parse_args())))
