"""How fast the OpenSearch store is, and how much of that is the adapter's.

    python -m bench.opensearch_adapter --jobs 10000 100000

For each number of available jobs: creating them in bulk, searching a window of candidates of one lane, counting by
lane, and version-checked claims in bulks of 500, each beside a bare loop that posts ready-made documents with the HTTP
library alone. The figures are printed last. A million jobs take a few minutes and about 1 GB of disk.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

import aiohttp
import orjson

from holdfast.adapters.opensearch.job_store import OpenSearchJobStore
from holdfast.adapters.opensearch.queries import page_of
from holdfast.domain.jobs.claim import Applied, claim, end
from holdfast.domain.jobs.job_document import Ending, JobDocument, Manifest, Outcome, State, lane_of
from holdfast.domain.jobs.resources import Resources
from holdfast.domain.jobs.specification import Specification
from holdfast.domain.jobs.submission import Submission, new_job
from holdfast.formats.job_json import job_to_json
from holdfast.ports.job_store import Change, JobQuery, Stored, Version, Written

START = 1_760_000_000_000
OWNERS = ("alice", "bob", "chandra", "dimitra")
BULK = 500
CREATE_BULK = 1_000
SPECIFICATION = Specification(
    "sha256:" + "5d" * 32, "physics", "reconstruct", ("./run", "--index", "{index}"),
    resources=Resources(1, 2 << 30, 1 << 30, 0, 3600),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """What some work took."""

    items: int
    seconds: float
    client: float
    server: float

    @property
    def rate(self) -> float:
        return self.items / self.seconds

    def __str__(self) -> str:
        return (
            f"{self.rate:>9,.0f}/s   client {1e6 * self.client / self.items:6.1f} µs   "
            f"server {1e6 * self.server / self.items:6.1f} µs of CPU each"
        )


class Node:
    """The server under test, seen without the adapter."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Node:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, object]:
        assert self._session is not None
        kind = {"content-type": "application/x-ndjson"} if body else None
        async with self._session.request(method, self.url + path, data=body, headers=kind) as response:
            answer: dict[str, object] = orjson.loads(await response.read())
            assert response.status < 300, answer
            return answer

    async def cpu(self) -> float:
        nodes = (await self.ask("GET", "/_nodes/stats/process"))["nodes"]
        assert isinstance(nodes, dict)
        return float(sum(node["process"]["cpu"]["total_in_millis"] for node in nodes.values())) / 1000

    async def size(self, index: str) -> int:
        total = (await self.ask("GET", f"/{index}/_stats/store"))["_all"]
        assert isinstance(total, dict)
        return int(total["primaries"]["store"]["size_in_bytes"])

    async def measure(self, items: int, work: Callable[[], Awaitable[object]]) -> Cost:
        server, client, begun = await self.cpu(), time.process_time(), time.perf_counter()
        await work()
        seconds, client = time.perf_counter() - begun, time.process_time() - client
        return Cost(items, seconds, client, await self.cpu() - server)


def make_jobs(first: int, count: int) -> list[JobDocument]:
    """Jobs of four owners in turn, as a scatter task makes them."""
    jobs = []
    for index in range(first, first + count):
        owner = OWNERS[index % len(OWNERS)]
        submission = Submission(
            SPECIFICATION, owner, team="atlas", index=index, parameters={"seed": index}, labels={"run": "2026a"},
            expected_runtime=1200,
        )  # fmt: skip
        jobs.append(new_job(submission, job=str(UUID(int=uuid4().int)), now=START + index // 10, by=owner))
    return jobs


async def create(store: OpenSearchJobStore, first: int, count: int) -> float:
    """Create jobs; the time spent in the store."""
    spent = 0.0
    for start in range(first, first + count, CREATE_BULK):
        changes = [Change(job, None) for job in make_jobs(start, min(CREATE_BULK, first + count - start))]
        begun = time.perf_counter()
        results = await store.write(changes)
        spent += time.perf_counter() - begun
        assert all(isinstance(result, Written) for result in results), results[0]
    return spent


def queue(owner: str, slots: frozenset[int] | None) -> JobQuery:
    lane = str(lane_of(make_jobs(OWNERS.index(owner), 1)[0]))
    return JobQuery(
        states=frozenset({State.AVAILABLE}), anyof={"lane": [lane]}, held=False, slots=slots,
        at_most={"not_before": int(time.time() * 1000)},
    )  # fmt: skip


async def median_ms(work: Callable[[], Awaitable[object]], times: int = 7) -> float:
    """The middle of several runs, after two that warm the caches."""
    took = []
    for run in range(times + 2):
        begun = time.perf_counter()
        await work()
        if run >= 2:
            took.append(1000 * (time.perf_counter() - begun))
    return statistics.median(took)


async def candidates(store: OpenSearchJobStore, owner: str, count: int) -> list[Stored]:
    found: list[Stored] = []
    cursor = None
    while len(found) < count:
        limit = min(5_000, count - len(found))
        page = await store.search(queue(owner, None), sort="rank", limit=limit, cursor=cursor)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            break
    return found


def claimed(one: Stored) -> Change:
    taken = claim(
        one.document, claim_id=uuid4().hex, pilot="slurm:4711:0:8c1f", host="n0417.example.org", now=START + 10**6
    )
    assert isinstance(taken, JobDocument)
    return Change(taken, one.version)


def ended(document: JobDocument, version: Version) -> Change:
    assert document.claim is not None
    manifest = Manifest(f"work/{document.id}/{document.attempt}/manifest.json", "ab" * 32, 3, 123_456_789)
    ending = Ending(
        document.token, document.claim.id, Outcome.OK, "exit", 0, None, START + 10**6, 812.25, 790.5, 1 << 30,
        document.claim.host, manifest,
    )  # fmt: skip
    done = end(document, ending, now=START + 2 * 10**6, by=document.claim.pilot)
    assert isinstance(done, Applied)
    return Change(done.document, version)


Bulk = list[tuple[Change, dict[str, object]]]


async def adapter_loop(store: OpenSearchJobStore, bulks: Sequence[Bulk]) -> list[tuple[JobDocument, Version]]:
    written = []
    for bulk in bulks:
        changes = [change for change, _ in bulk]
        for change, result in zip(changes, await store.write(changes), strict=True):
            assert isinstance(result, Written), result
            written.append((change.document, result.version))
    return written


async def bare_loop(node: Node, index: str, bulks: Sequence[Bulk]) -> list[tuple[JobDocument, Version]]:
    """The least that could be written by hand: ready dictionaries in, sequence numbers out."""
    written = []
    for bulk in bulks:
        lines = []
        for change, document in bulk:
            assert change.expected is not None
            number, term = change.expected
            lines.append(
                b'{"index":{"_id":"%b","if_seq_no":%d,"if_primary_term":%d}}\n'
                % (change.document.id.encode(), number, term)
            )
            lines.append(orjson.dumps(document) + b"\n")
        items = (await node.ask("POST", f"/{index}/_bulk", b"".join(lines)))["items"]
        assert isinstance(items, list)
        for (change, _), item in zip(bulk, items, strict=True):
            line = item["index"]
            assert line["status"] == 200
            written.append((change.document, Version(line["_seq_no"], line["_primary_term"])))
    return written


def bulks_of(changes: Sequence[Change]) -> list[Bulk]:
    pairs = [(change, job_to_json(change.document)) for change in changes]
    return [pairs[start : start + BULK] for start in range(0, len(pairs), BULK)]


async def claims(node: Node, store: OpenSearchJobStore, count: int) -> tuple[Cost, Cost, list[Change]]:
    """Claims by the adapter and by the bare loop, in turn, so that both see the same machine."""
    index = store.cluster.layout.alias("jobs")
    half = count // 2
    found = await candidates(store, OWNERS[0], count)
    mine = bulks_of([claimed(one) for one in found[:half]])
    bare = bulks_of([claimed(one) for one in found[half:]])
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    taken: list[tuple[JobDocument, Version]] = []
    step = max(1, len(mine) // 10)
    for start in range(0, len(mine), step):
        some, others = mine[start : start + step], bare[start : start + step]

        async def by_adapter(some: Sequence[Bulk] = some) -> None:
            taken.extend(await adapter_loop(store, some))

        async def by_hand(others: Sequence[Bulk] = others) -> None:
            taken.extend(await bare_loop(node, index, others))

        costs[0].append(await node.measure(sum(map(len, some)), by_adapter))
        costs[1].append(await node.measure(sum(map(len, others)), by_hand))
    total_adapter, total_bare = (
        Cost(*(sum(getattr(one, name) for one in side) for name in ("items", "seconds", "client", "server")))
        for side in costs
    )
    return total_adapter, total_bare, [ended(document, version) for document, version in taken]


async def figures(node: Node, count: int) -> list[str]:
    store = OpenSearchJobStore([node.url], prefix=f"bench-{uuid4().hex[:8]}", timeout=60.0)
    await store.open()
    index = store.cluster.layout.alias("jobs")
    try:
        lines = [f"{count:,} available jobs, 4 lanes"]
        before, client = await node.cpu(), time.process_time()
        spent = await create(store, 0, count)
        server = await node.cpu() - before
        lines.append(
            f"  create, bulks of {CREATE_BULK:,}: {count / spent:,.0f}/s, server {1e6 * server / count:.1f} µs of CPU each"
        )
        progress(f"{count:,} created in {time.process_time() - client:.0f} s of client CPU")
        await store.refresh()
        lines.append(f"  stored before claims: {await node.size(index) / count:,.0f} B a job")
        for size in (1_000, 2_000, 5_000):
            for name, slots in (("all slots", None), ("256 slots", frozenset(range(0, 1024, 4)))):

                async def window(size: int = size, slots: frozenset[int] | None = slots) -> None:
                    page = await store.search(queue("bob", slots), sort="rank", limit=size)
                    assert len(page.jobs) == min(size, len(page.jobs))

                async def bare_window(size: int = size, slots: frozenset[int] | None = slots) -> None:
                    await store.cluster.search("jobs", page_of(queue("bob", slots), "rank", size, None))

                lines.append(
                    f"  window of {size:,}, {name}: {await median_ms(window):.1f} ms "
                    f"({await median_ms(bare_window):.1f} ms without reading the documents)"
                )

        async def counted() -> None:
            counts = await store.count(JobQuery(states=frozenset({State.AVAILABLE})), by="lane")
            assert sum(counts.values()) == count

        lines.append(f"  count by lane: {await median_ms(counted):.1f} ms")
        wanted = min(count // 5, 100_000)
        progress(f"claiming {wanted:,}")
        adapter, bare, ends = await claims(node, store, wanted)
        lines.append(f"  claims by the adapter, bulks of {BULK}: {adapter}")
        lines.append(f"  claims by a bare loop, bulks of {BULK}: {bare}")
        lines.append(f"  adapter to bare loop: {adapter.rate / bare.rate:.2f}")
        ending = await node.measure(len(ends), lambda: adapter_loop(store, bulks_of(ends)))
        lines.append(f"  ends by the adapter, bulks of {BULK}:   {ending}")
        return lines
    finally:
        await node.ask("DELETE", f"/{store.cluster.layout.prefix}-*")
        await store.close()


def progress(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    url = os.environ.get("HOLDFAST_TEST_OPENSEARCH", "http://127.0.0.1:9200").split(",")[0]
    parser.add_argument("--url", default=url, help="one OpenSearch node (default: %(default)s)")
    options = parser.parse_args()
    lines: list[str] = []
    async with Node(options.url) as node:
        progress("warming up")
        await figures(node, 20_000)
        for count in options.jobs:
            lines += await figures(node, count)
    print("\n".join(lines))


if __name__ == "__main__":
    asyncio.run(main())
