"""What everything that is stored takes: bytes of each kind of document, and how many of them a job makes.

    just bench retention
    just bench retention --store opensearch --jobs 5000

A server takes jobs in requests with idempotency keys, a pilot runs them, some fail, their failures take the real pipeline, and a rule has them tried again. Then each kind is counted and measured where it
lies: the bytes of its rows or documents, with its share of the tables, indexes and free space of the store. No copies (replicas) are counted. Kinds with fewer than 20 documents are
measured by their content alone.

The page docs/reference/retention.md (`just retention`) and the plan of an installation (`forestay plan`) use these figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]
import httpx
import structlog
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot, end_of
from tests.unit.apps.server.store_room import store_room

from bench.harness import Run, keep, leave

TENANT = "bench"
RECORDS = Path(__file__).parents[1] / "tests" / "unit" / "packs" / "unseen_infra.jsonl"
FAILURE = 12
"""The record that failures print: an error that goes away when the job is tried again."""
FEWEST = 20
UNLIMITED = {
    "storm_failures": 10**6,
    **{
        f"safeguard_{name}": 10**6
        for name in ("acts", "owner_acts", "site_acts", "rule_acts", "tenant_hours", "owner_hours")
    },
}
"""A day's failures happen here in a minute, which would be a storm."""
PAPERS = {"Incident": "incident", "Decision": "decision", "StepRecord": "step"}
PREFIXES = ("launch-ended:", "launch:", "placing@", "placing-left@", "engine-run:")
TABLES = {
    "jobs": ("jobs", "'job'"),
    "specifications": ("specifications", "'specification'"),
    "records": ("records", "kind"),
    "documents": ("documents", "kind"),
    "incident_status": ("incidents", "'status'"),
    "papers": ("incidents", "kind"),
    "pilots": ("pilots", "'pilot'"),
    "heartbeats": ("heartbeats", "'page'"),
    "audit": ("audit log", "'page'"),
}
"""By table or index: where its documents are in the table of kinds, and what names their kind."""


@dataclass(slots=True)
class Measured:
    """The documents of each kind, and the bytes of their content; and the bytes that each table takes."""

    count: Counter[tuple[str, str]] = field(default_factory=Counter)
    content: Counter[tuple[str, str]] = field(default_factory=Counter)
    whole: dict[str, int] = field(default_factory=dict)

    def add(self, table: str, kind: str, count: int, content: int) -> None:
        kind = next((f"{prefix}*" for prefix in PREFIXES if kind.startswith(prefix)), PAPERS.get(kind, kind))
        self.count[table, kind] += count
        self.content[table, kind] += content

    def kinds(self, jobs: int) -> dict[str, dict[str, float]]:
        """By place and kind."""
        sums = Counter[str]()
        for (table, _), content in self.content.items():
            sums[table] += content
        result: dict[str, dict[str, float]] = {}
        for (table, kind), count in sorted(self.count.items()):
            content = self.content[table, kind]
            taken = self.whole[table] * content / sums[table] if count >= FEWEST else content
            result[f"{TABLES[table][0]}: {kind}"] = {
                "documents": count,
                "bytes_each": round(taken / count),
                "content_each": round(content / count),
                "each_job": count / jobs,
            }
        return result


def of_sqlite(url: str) -> Measured:
    measured = Measured()
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("VACUUM")
        for table, (_, kind) in TABLES.items():
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            length = "+".join(f"coalesce(length({name!r}),0)".replace("'", '"') for name in names)
            for row in connection.execute(f"SELECT {kind}, count(*), sum({length}) FROM {table} GROUP BY 1"):  # noqa: S608 - names of our own
                measured.add(table, *row)
            pages = "SELECT sum(pgsize) FROM dbstat WHERE name IN (SELECT name FROM sqlite_master WHERE tbl_name = ?)"
            (measured.whole[table],) = connection.execute(pages, (table,)).fetchone()
    return measured


async def of_postgresql(url: str) -> Measured:
    measured = Measured()
    connection = await asyncpg.connect(url)
    try:
        for table, (_, kind) in TABLES.items():
            await connection.execute(f"VACUUM FULL {table}")
            content = f"SELECT {kind} AS kind, count(*) AS many, sum(pg_column_size(t.*)) AS size FROM {table} t"  # noqa: S608 - names of our own
            rows = await connection.fetch(f"{content} GROUP BY 1")
            for row in rows:
                measured.add(table, row["kind"], row["many"], row["size"])
            measured.whole[table] = await connection.fetchval("SELECT pg_total_relation_size($1::regclass)", table)
    finally:
        await connection.close()
    return measured


def of_opensearch(url: str) -> Measured:
    measured = Measured()
    parts = urlsplit(url)
    prefix = parts.path.strip("/") or "forestay"
    with httpx.Client(base_url=f"http://{parts.netloc.rpartition('@')[2]}", timeout=120) as client:
        for table, (_, kind) in TABLES.items():
            index = f"{prefix}-{table}"
            client.post(f"/{index}/_forcemerge", params={"max_num_segments": 1}).raise_for_status()
            client.post(f"/{index}/_flush", params={"force": "true"}).raise_for_status()
            body: dict[str, Any] = {"size": 1000, "sort": ["_doc"]}
            answer = client.post(f"/{index}/_search", params={"scroll": "1m"}, json=body).json()
            while answer["hits"]["hits"]:
                for hit in answer["hits"]["hits"]:
                    source = hit["_source"]
                    name = source["kind"] if kind == "kind" else kind.strip("'")
                    measured.add(table, name, 1, len(json.dumps(source, separators=(",", ":"))))
                following = {"scroll": "1m", "scroll_id": answer["_scroll_id"]}
                answer = client.post("/_search/scroll", json=following).json()
            stats = client.get(f"/{index}/_stats/store").raise_for_status().json()
            measured.whole[table] = stats["_all"]["primaries"]["store"]["size_in_bytes"]
    return measured


async def add_rule(server: RunningServer) -> None:
    """Lets a rule answer the failures, so that what it does is audited."""
    ann = server.person("administrator", "operator", "rule-author", tenant=TENANT, subject="ann")
    answer = await ann.post(
        "/v1/rules/domain/site",
        json={
            "type": "abort",
            "condition": 'cause == "network"',
            "conclusion": {"steps": [{"action": "resubmit", "target": "job"}]},
            "reference_incident": "first",
            "context": {"cause": "network"},
        },
    )
    answer.raise_for_status()
    rule = answer.json()["rule"]
    path = f"/v1/rules/domain/site/rules/{rule}/state"
    (await ann.post(path, json={"reason": "it goes away"})).raise_for_status()
    await server.services.components.pipeline.decider.rules.refresh()


async def load(domain: Domain, args: argparse.Namespace) -> None:
    """So many jobs, of which some fail once."""
    record = json.loads(RECORDS.read_text(encoding="utf-8").splitlines()[FAILURE])
    failed = {name: record[name] for name in ("exit_code", "signal", "log_tail") if name in record} | {
        "outcome": "failure",
        "reason": "exit",
    }
    # Whole lines, as programs print them, that differ from job to job.
    printed = "".join(f"step {number:03}: read 4096 records, wrote 4096 records\n" for number in range(200))
    async with domain.server(**UNLIMITED) as server:
        await add_rule(server)
        person = server.person("submitter", tenant=TENANT)
        made: list[str] = []
        for number in range(args.jobs // args.request):
            # Each request is of another specification, and its jobs of other parameters.
            jobs = [{"parameters": {"sample": f"S{number}-{place}"}} for place in range(args.request)]
            command = ["align", "--threads", "4", "{sample}", f"--batch={number}"]
            made += await submit(person, *jobs, key=f"request-{number}", command=command, outputs=["aligned.bam"])
        failing = {name for place, name in enumerate(made) if place % 100 < 100 * args.failures}
        pilot = await ScriptedPilot.register(server, TENANT, slots=64)
        over = 0
        while over < len(made):
            claims = await pilot.claim(most=32, wait=5)
            ends = []
            for claim in claims:
                fails = claim["job"] in failing and claim["attempt"] == 1
                over += not fails
                facts = failed if fails else {"log_tail": printed[: args.output], "log_bytes": args.output}
                ends.append(end_of(claim, **facts))
            if ends:
                (await pilot.post("completions", {"completions": ends})).raise_for_status()


async def main(args: argparse.Namespace) -> bool:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory() as folder:
        async with store_room(args.store, Path(folder)) as url:
            began = time.perf_counter()
            await load(Domain(url, Path(folder) / "state"), args)
            seconds = time.perf_counter() - began
            if args.store == "sqlite":
                measured = of_sqlite(url)
            elif args.store == "postgresql":
                measured = await of_postgresql(url)
            else:
                measured = of_opensearch(url)
    kinds = measured.kinds(args.jobs)
    figures: Mapping[str, object] = {
        "store": args.store,
        "jobs": args.jobs,
        "jobs_each_request": args.request,
        "failures": args.failures,
        "output": args.output,
        "kinds": kinds,
    }
    for name, known in kinds.items():
        print(
            f"{name:<32} {known['documents']:>8,} documents {known['bytes_each']:>8,} bytes each {known['each_job']:>8.3f} a job"
        )
    keep(f"retention-{args.store}", [Run("jobs", args.jobs, seconds, {}, 0.0, 0.0)], figures)
    return True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgresql", "opensearch"), default="sqlite")
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--request", type=int, default=100, help="jobs of one request, which share a specification")
    parser.add_argument("--failures", type=float, default=0.05, help="the share of jobs that fail once")
    parser.add_argument("--output", type=int, default=1_000, help="bytes that a job prints")
    leave(reached=asyncio.run(main(parser.parse_args())))
