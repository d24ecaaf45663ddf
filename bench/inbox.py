"""The inbox over a full store: how long its answer takes, and how long until it can be used in a browser.

    just bench inbox
    just bench inbox --jobs 1000000 --incidents 100000 --store postgresql

One tenant has as many incidents that wait as are asked for, of 200 owners and 12 causes, a tenth of them in storms; another has a hundred. Both are asked in turn, so that the ratio says
what the many cost on whatever else the machine does. The incidents are written as the failure handler writes them; the jobs are copies of a real one, made inside the store. In the browser
a person comes by a link, with an empty cache; the inbox is usable when its first group can be opened.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.async_api import async_playwright
from sqlalchemy import text
from tests.contract.examples import job
from tests.system.web.browser import WIDE, chromium
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.apps.server.store_room import store_room

from bench.harness import keep, leave, paired
from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.tables import jobs
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident, IncidentState, status_of
from forestay.domain.jobs.job_document import State
from forestay.ports.jobs.job_store import DocumentChange

MANY, FEW = "many", "few"
GOAL = 1.0
"""Seconds until the inbox can be used."""
CAUSES = (
    "memory", "time", "node", "disk", "code", "transfer", "network", "unknown", "input", "licence", "data-missing", "preempted",
)  # fmt: skip
OWNERS = 200
COPIED = 50_000
WRITTEN = 500


async def copy_jobs(store: SqlJobStore, count: int) -> None:
    """So many jobs that are over, made by the store from one."""
    first = job("first", tenant=MANY, state=State.COMPLETED)
    await store.write([DocumentChange(first, None)])
    quote = store.database.dialect.writer.dialect.identifier_preparer.quote
    others = ", ".join(quote(column.name) for column in jobs.columns if column.name != "id")
    for start in range(0, count, COPIED):
        end = min(count, start + COPIED) - 1
        await store.database.run(
            text(
                "WITH RECURSIVE numbers(n) AS (SELECT :start UNION ALL SELECT n + 1 FROM numbers WHERE n < :end) "  # noqa: S608
                f"INSERT INTO jobs (id, {others}) SELECT 'copy-' || n, {others} FROM jobs, numbers WHERE id = 'first'"
            ).bindparams(start=start, end=end)
        )


async def write_incidents(store: SqlIncidentStore, tenant: str, count: int, now: int) -> None:
    for start in range(0, count, WRITTEN):
        made = []
        for n in range(start, min(count, start + WRITTEN)):
            cause, owner = CAUSES[n % len(CAUSES)], f"owner{n * 7919 % min(OWNERS, max(1, count // 10)):03}"
            incident = Incident(
                f"{tenant}-{n}", tenant, owner, ExceptionType.ABORT, now - n * 1000, job=f"copy-{n}", cause=cause,
                context={"evidence": {"exit_code": 1, "log_tail": "reading\nKilled\n"}},
            )  # fmt: skip
            group = f"cause:{cause}@{n % 3}" if n % 10 == 0 else ""
            status = status_of(incident, group=group, core_seconds=3600 + n % 1000)
            note = "no rule answers it: look at the log, and write a rule"
            made.append((incident, replace(status, state=IncidentState.HELD, due=None, note=note)))
        await store.add_incidents(made)


async def ask(server: RunningServer, rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of each answer, and of this process's CPU, the server's and the asker's; the tenants in turn."""
    people = {tenant: server.person("viewer", tenant=tenant) for tenant in (MANY, FEW)}
    taken: dict[str, list[float]] = {MANY: [], FEW: []}
    worked: dict[str, list[float]] = {MANY: [], FEW: []}
    for number in range(rounds + 2):
        for tenant, person in people.items():
            begun, before = time.perf_counter(), time.process_time()
            answer = await person.get("/v1/inbox", params={"limit": 100})
            if number >= 2:  # the first ones open connections
                taken[tenant].append(time.perf_counter() - begun)
                worked[tenant].append(time.process_time() - before)
            answer.raise_for_status()
    return taken, worked


async def browse(server: RunningServer, visits: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds until the first group can be opened, the tenants in turn: from following a link that logs in, in a browser that was never here; and from opening the page again."""
    first: dict[str, list[float]] = {MANY: [], FEW: []}
    again: dict[str, list[float]] = {MANY: [], FEW: []}
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        for number in range(2 * visits + 1):
            tenant = (FEW, MANY)[number % 2]
            context = await browser.new_context(viewport=WIDE)  # type: ignore[arg-type]
            link = await server.person("operator", tenant=tenant, subject="ann").post("/v1/logins")
            page = await context.new_page()
            for taken, where in ((first, link.json()["url"]), (again, f"{server.url}/inbox")):
                begun = time.perf_counter()
                await page.goto(where, wait_until="commit")
                await page.get_by_role("button", name="Open: ").first.click(trial=True)
                if number:  # the first starts the browser's own processes
                    taken[tenant].append(time.perf_counter() - begun)
            await context.close()
        await browser.close()
    return first, again


def told(name: str, seconds: list[float]) -> dict[str, float]:
    ranked = sorted(seconds)
    p50, p99 = statistics.median(ranked), ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))]
    print(f"{name}: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, of {len(ranked)}")
    return {"p50_ms": round(p50 * 1000, 1), "p99_ms": round(p99 * 1000, 1)}


async def main(args: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        async with store_room(args.store, folder) as url:
            store = SqlJobStore(url, timeout=600)
            await store.open()
            begun, now = time.monotonic(), time.time_ns() // 1_000_000
            incidents = SqlIncidentStore(store.database)
            await write_incidents(incidents, MANY, args.incidents, now)
            await write_incidents(incidents, FEW, 100, now)
            await copy_jobs(store, args.jobs)
            await store.database.run(text("ANALYZE"))
            print(f"{args.jobs:,} jobs and {args.incidents:,} incidents after {time.monotonic() - begun:.0f} s")
            await store.close()
            async with Domain(url, folder).server() as server:
                taken, worked = await ask(server, args.rounds)
                first, seen = await browse(server, args.visits)
    figures: dict[str, Any] = {
        "store": args.store,
        "jobs": args.jobs,
        "incidents": args.incidents,
        "answer": told("the answer", taken[MANY]),
        "answer_of_a_hundred": told("the answer of a hundred", taken[FEW]),
        "answer_cpu": told("CPU of the answer", worked[MANY]),
        "answer_of_a_hundred_cpu": told("CPU of the answer of a hundred", worked[FEW]),
        "answers_ratio": paired(taken[MANY], taken[FEW]),
        "first_visit": told("usable at a first visit with its log-in", first[MANY]),
        "first_visit_of_a_hundred": told("usable at a first visit, of a hundred", first[FEW]),
        "usable": told("usable in the browser", seen[MANY]),
        "usable_of_a_hundred": told("usable in the browser, of a hundred", seen[FEW]),
        "usable_ratio": paired(seen[MANY], seen[FEW]),
    }
    print(f"answers, many to a hundred: {figures['answers_ratio']}")
    print(f"usable, many to a hundred: {figures['usable_ratio']}")
    figures["seconds"] = {"answer": taken, "usable": seen}
    keep(f"inbox-{args.store}", [], figures)
    return bool(figures["usable"]["p50_ms"] <= GOAL * 1000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--incidents", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--visits", type=int, default=10)
    leave(reached=asyncio.run(main(parser.parse_args())))
