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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import aiohttp
import orjson
import uvloop

from bench.harness import Run, measure, opensearch_pid, paired, rates
from forestay.adapters.opensearch.job_store import OpenSearchJobStore
from forestay.adapters.opensearch.queries import page_of
from forestay.domain.jobs.claim import Applied, claim, end
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, Manifest, State, lane_of
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.formats.jobs.job_json import job_to_json
from forestay.ports.jobs.job_store import DocumentChange, JobQuery, Stored, Version, Written

START = 1_760_000_000_000
OWNERS = ("alice", "bob", "chandra", "dimitra")
BULK = 500
CREATE_BULK = 1_000
SOME_SLOTS = frozenset(range(0, 1024, 4))
WINDOWS = 20
MOST_CLAIMS = 40_000
PAIRS = 10
SPECIFICATION = Specification(
    "sha256:" + "5d" * 32, "physics", "reconstruct", ("./run", "--index", "{index}"),
    resources=Resources(1, 2 << 30, 1 << 30, 0, 3600),
)  # fmt: skip


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

    async def deleted(self, index: str) -> int:
        """Earlier versions that merges have not removed yet."""
        await self.ask("POST", f"/{index}/_refresh")
        total = (await self.ask("GET", f"/{index}/_stats/docs"))["_all"]
        assert isinstance(total, dict)
        return int(total["primaries"]["docs"]["deleted"])

    async def size(self, index: str) -> int:
        total = (await self.ask("GET", f"/{index}/_stats/store"))["_all"]
        assert isinstance(total, dict)
        return int(total["primaries"]["store"]["size_in_bytes"])


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
        changes = [DocumentChange(job, None) for job in make_jobs(start, min(CREATE_BULK, first + count - start))]
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
    jobs: list[Stored] = []
    cursor = None
    while len(jobs) < count:
        limit = min(5_000, count - len(jobs))
        page = await store.search(queue(owner, None), sort="rank", limit=limit, cursor=cursor)
        jobs += page.jobs
        cursor = page.cursor
        if cursor is None:
            break
    return jobs


def claimed(stored: Stored) -> DocumentChange:
    taken = claim(
        stored.document, claim_id=uuid4().hex, pilot="slurm:4711:0:8c1f", host="n0417.example.org", now=START + 10**6
    )
    assert isinstance(taken, JobDocument)
    return DocumentChange(taken, stored.version)


def ended(document: JobDocument, version: Version) -> DocumentChange:
    assert document.claim is not None
    manifest = Manifest(f"work/{document.id}/{document.attempt}/manifest.json", token_hex(32), 3, 123_456_789)
    ending = AttemptResult(
        document.token, document.claim.id, AttemptOutcome.OK, "exit", 0, None, START + 10**6, 812.25, 790.5, 1 << 30,
        document.claim.host, manifest,
    )  # fmt: skip
    done = end(document, ending, now=START + 2 * 10**6, by=document.claim.pilot)
    assert isinstance(done, Applied)
    return DocumentChange(done.document, version)


Bulk = list[tuple[DocumentChange, dict[str, object]]]


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
        for (change, _), entry in zip(bulk, items, strict=True):
            line = entry["index"]
            assert line["status"] == 200
            written.append((change.document, Version(line["_seq_no"], line["_primary_term"])))
    return written


def bulks_of(changes: Sequence[DocumentChange]) -> list[Bulk]:
    pairs = [(change, job_to_json(change.document)) for change in changes]
    return [pairs[start : start + BULK] for start in range(0, len(pairs), BULK)]


def split(changes: Sequence[DocumentChange], parts: int) -> list[list[Bulk]]:
    bulks = bulks_of(changes)
    step = max(1, len(bulks) // parts)
    return [bulks[start : start + step] for start in range(0, len(bulks), step)][:parts]


@dataclass(frozen=True, slots=True)
class Bench:
    """One store with so many available jobs, its node, and the two processes whose CPU is counted."""

    node: Node
    store: OpenSearchJobStore
    processes: Mapping[str, int]
    jobs: int

    @property
    def index(self) -> str:
        return self.store.cluster.layout.alias("jobs")

    async def created(self) -> str:
        spent = 0.0

        async def work() -> int:
            nonlocal spent
            spent = await create(self.store, 0, self.jobs)
            return self.jobs

        run = await measure("create", work, self.processes)
        await self.store.refresh()
        size = await self.node.size(self.index)
        return (
            f"  create, bulks of {CREATE_BULK:,}: {self.jobs / spent:,.0f}/s, "
            f"{1e6 * run.cpu['store'] / self.jobs:.0f} µs of store CPU each; {size / self.jobs:,.0f} B a job"
        )

    async def window(self, size: int, slots: frozenset[int] | None) -> str:
        async def work() -> int:
            count = 0
            for _ in range(WINDOWS):
                count += len((await self.store.search(queue("bob", slots), sort="rank", limit=size)).jobs)
            return count

        async def search() -> None:
            await self.store.search(queue("bob", slots), sort="rank", limit=size)

        async def search_alone() -> None:
            await self.store.cluster.search("jobs", page_of(queue("bob", slots), "rank", size, None))

        whole, alone = await median_ms(search), await median_ms(search_alone)
        run = await measure(f"window of {size:,}", work, self.processes)
        spent = {name: 1e6 * used / run.operations for name, used in run.cpu.items()}
        return (
            f"  window of {size:,} ({run.operations // WINDOWS:,} there), "
            f"{'all' if slots is None else len(slots)} slots: {whole:.0f} ms, "
            f"{alone:.0f} ms of it the search; CPU a candidate: store {spent['store']:.0f} µs, "
            f"client {spent['client']:.0f} µs"
        )

    async def counted(self) -> str:
        async def work() -> None:
            counts = await self.store.count(JobQuery(states=frozenset({State.AVAILABLE})), by="lane")
            assert sum(counts.values()) == self.jobs

        return f"  count by lane: {await median_ms(work):.1f} ms"

    async def claimed(self) -> tuple[list[str], list[DocumentChange]]:
        """Claims by the adapter and by the bare loop in turn, so that both see the same machine."""
        each = min(self.jobs * 4 // 5, MOST_CLAIMS) // len(OWNERS)
        changes = [claimed(candidate) for owner in OWNERS for candidate in await candidates(self.store, owner, each)]
        half = len(changes) // 2
        taken: list[tuple[JobDocument, Version]] = []
        runs: list[Run] = []
        for mine, bare in zip(split(changes[:half], PAIRS), split(changes[half:], PAIRS), strict=True):

            async def by_adapter(some: list[Bulk] = mine) -> int:
                taken.extend(await adapter_loop(self.store, some))
                return sum(map(len, some))

            async def by_hand(some: list[Bulk] = bare) -> int:
                taken.extend(await bare_loop(self.node, self.index, some))
                return sum(map(len, some))

            runs.append(await measure("adapter", by_adapter, self.processes))
            runs.append(await measure("bare", by_hand, self.processes))
        ratio = paired(rates(runs, "adapter"), rates(runs, "bare"))
        lines = [f"  claims by {told(runs, arm)}" for arm in ("adapter", "bare")]
        lines.append(f"  claims, adapter to bare loop: {ratio}")
        return lines, [ended(document, version) for document, version in taken]

    async def finished(self, ends: list[DocumentChange]) -> list[str]:
        bulks = bulks_of(ends)

        async def work() -> int:
            return len(await adapter_loop(self.store, bulks))

        return [f"  ends by {told([await measure('adapter', work, self.processes)], 'adapter')}"]


def told(runs: Sequence[Run], arm: str) -> str:
    some = [run for run in runs if run.arm == arm]
    count = sum(run.operations for run in some)
    spent = {name: 1e6 * sum(run.cpu[name] for run in some) / count for name in some[0].cpu}
    return (
        f"{arm}, bulks of {BULK}: {count / sum(run.seconds for run in some):,.0f}/s; "
        f"CPU each: store {spent['store']:.0f} µs, client {spent['client']:.0f} µs"
    )


async def figures(node: Node, jobs: int) -> list[str]:
    store = OpenSearchJobStore([node.url], prefix=f"bench-{uuid4().hex[:8]}", timeout=120.0)
    await store.open()
    processes = {"store": opensearch_pid(urlsplit(node.url).port or 9200), "client": os.getpid()}
    bench = Bench(node, store, processes, jobs)
    try:
        lines = [f"{jobs:,} available jobs in {len(OWNERS)} lanes", await bench.created()]
        for size in (1_000, 2_000, 5_000):
            lines += [await bench.window(size, slots) for slots in (None, SOME_SLOTS)]
        lines.append(await bench.counted())
        claims, ends = await bench.claimed()
        return lines + claims + await bench.finished(ends)
    finally:
        await node.ask("DELETE", f"/{store.cluster.layout.prefix}-*")
        await store.close()


async def finished_size(node: Node, jobs: int) -> str:
    """What a job takes when it is over and merges have removed its earlier versions."""
    store = OpenSearchJobStore([node.url], prefix=f"bench-{uuid4().hex[:8]}", timeout=120.0)
    await store.open()
    index = store.cluster.layout.alias("jobs")
    try:
        for first in range(0, jobs, CREATE_BULK):
            changes = [DocumentChange(job, None) for job in make_jobs(first, CREATE_BULK)]
            for step in (claimed, lambda value: ended(value.document, value.version)):
                changes = [step(Stored(*pair)) for pair in await adapter_loop(store, bulks_of(changes))]
            await store.write(changes)
        while await node.deleted(index):
            # Earlier versions are kept for copies that may ask for them, until a flush and half a minute later.
            await node.ask("POST", f"/{index}/_flush?force=true")
            await asyncio.sleep(2)
            await node.ask("POST", f"/{index}/_forcemerge?max_num_segments=1")
        return f"a finished job after merging: {await node.size(index) / jobs:,.0f} B"
    finally:
        await node.ask("DELETE", f"/{store.cluster.layout.prefix}-*")
        await store.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    url = os.environ.get("FORESTAY_TEST_OPENSEARCH", "http://127.0.0.1:9200").split(",")[0]
    parser.add_argument("--url", default=url, help="one OpenSearch node on this machine (default: %(default)s)")
    options = parser.parse_args()
    lines: list[str] = []
    async with Node(options.url) as node:
        print("warming up", file=sys.stderr)
        await figures(node, 20_000)
        for jobs in options.jobs:
            lines += await figures(node, jobs)
        lines.append(await finished_size(node, 20_000))
    print("\n".join(lines))


if __name__ == "__main__":
    uvloop.run(main())
