"""An experiment: a scatter stored as job documents, as it is, beside one stored as chunks that are split when jobs are claimed.

    just bench chunks --jobs 100000 --rounds 3

Both arms do on PostgreSQL what the store is asked to do for so many no-ops: accept them, claim them in bulks, end them. Documents: one create a job, a search for
windows, one claim, one end. Chunks: one document for 1,000 jobs with their parameters; a claim creates the job's document already claimed, and each bulk moves the
chunk's low-water mark by a version-checked write; then one end. Neither Temporal nor HTTP is in it. It says what chunks would save, not that they would hold: what they
change is in decision 30.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Sequence
from uuid import uuid4

import orjson
import uvloop

from bench.harness import keep, leave, paired
from bench.whole_site import WholeSite, cpu_of, whole_site
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.apps.compose.stores import Stores, open_stores
from forestay.domain.flows.execution.run_names import job_of
from forestay.domain.jobs.claim import Applied, claim, end
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, FlowRef, JobDocument, State, lane_of
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import JobElement, Submission, new_job, new_jobs
from forestay.ports.documents import Document
from forestay.ports.jobs.job_store import DocumentChange, JobQuery, Stored, Written
from forestay.services.jobs.job_submitter import JobSubmitter

CHUNK = 1000
BULK = 500
AT_ONCE = 4
COMMON = Submission(Specification("noop", "bench", "each", ("true",)), "ann")
CLOCK, IDS = SystemClock(), RandomIds()


class Scatter:
    """So many jobs of one run."""

    def __init__(self, site: WholeSite, stores: Stores, jobs: int) -> None:
        self.site = site
        self.stores = stores
        self.jobs = jobs
        self.run = str(uuid4())
        self.submit = JobSubmitter(stores.jobs, CLOCK, IDS)
        self.lane = str(lane_of(new_job(COMMON, job="", now=0, by="")))
        self.reading = asyncio.Lock()
        self.cursor: str | None = None

    def elements(self, first: int, arguments: Sequence[dict[str, object]]) -> list[JobElement]:
        return [
            JobElement(
                job_of(self.run, "each@1", at),
                at,
                argument,
                FlowRef(self.run, "each@1", "f", at // 5000, at % 5000, 5000),
            )
            for at, argument in enumerate(arguments, first)
        ]

    def parameters(self, first: int) -> list[dict[str, object]]:
        return [{"n": at} for at in range(first, first + CHUNK)]

    async def all_chunks(self, work: object) -> None:
        """Have something done for every chunk, some at a time, as shards do."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(first: int) -> None:
            async with turns:
                await work(first)  # type: ignore[operator]

        await asyncio.gather(*(one(first) for first in range(0, self.jobs, CHUNK)))

    async def spent(self, work: object) -> tuple[float, float]:
        """Seconds, and microseconds of CPU a job, of this process and the store."""
        store = self.site.servers["postgres"]
        begun, burnt = time.perf_counter(), time.process_time() + cpu_of(store)
        await self.all_chunks(work)
        cpu = time.process_time() + cpu_of(store) - burnt
        return time.perf_counter() - begun, cpu / self.jobs * 1e6

    # -- documents ---------------------------------------------------------------------------------------------

    async def accept_documents(self, first: int) -> None:
        await self.submit.submit_elements(COMMON, self.elements(first, self.parameters(first)), by="run")

    async def run_documents(self, _first: int) -> None:
        """The next page of the lane, as a window reads it."""
        query = JobQuery(
            states=frozenset({State.AVAILABLE}),
            anyof={"lane": [self.lane]},
            at_most={"not_before": CLOCK.now()},
            held=False,
        )
        async with self.reading:
            page = await self.stores.jobs.search(query, sort="rank", limit=CHUNK, cursor=self.cursor)
            self.cursor = page.cursor
        for start in range(0, CHUNK, BULK):
            claimed = [DocumentChange(_claimed(job.document), job.version) for job in page.jobs[start : start + BULK]]
            await self.finish(await self.written(claimed))

    # -- chunks ------------------------------------------------------------------------------------------------

    def chunk(self, first: int, parameters: Sequence[dict[str, object]], low: int) -> Document:
        body = {"run": self.run, "first": first, "low": low, "parameters": parameters}
        return Document(f"chunk:{self.run}:{first}", "bench", "chunk", body)

    async def accept_chunk(self, first: int) -> None:
        (result,) = await self.stores.documents.put([(self.chunk(first, self.parameters(first), 0), None)])
        assert isinstance(result, Written), result

    async def run_chunk(self, first: int) -> None:
        name = f"chunk:{self.run}:{first}"
        document, version = (await self.stores.documents.get([name]))[name]
        given_document = orjson.loads(orjson.dumps(document.body["parameters"]))
        for start in range(0, CHUNK, BULK):
            elements = self.elements(first + start, given_document[start : start + BULK])
            fresh = new_jobs(COMMON, elements, now=CLOCK.now(), by="run")
            claimed = await self.written([DocumentChange(_claimed(document), None) for document in fresh])
            (moved,) = await self.stores.documents.put([(self.chunk(first, given_document, start + BULK), version)])
            assert isinstance(moved, Written), moved
            version = moved.version
            await self.finish(claimed)

    # -- both --------------------------------------------------------------------------------------------------

    async def written(self, changes: Sequence[DocumentChange]) -> list[Stored]:
        results = await self.stores.jobs.write(changes)
        assert len(results) == BULK
        out = []
        for change, result in zip(changes, results, strict=True):
            assert isinstance(result, Written), result
            out.append(Stored(change.document, result.version))
        return out

    async def finish(self, claimed: Sequence[Stored]) -> None:
        await self.written([DocumentChange(_ended(stored.document), stored.version) for stored in claimed])


def _claimed(document: JobDocument) -> JobDocument:
    claimed = claim(document, claim_id=IDS.claim(), pilot="p-1", host="h", now=CLOCK.now())
    assert isinstance(claimed, JobDocument), claimed
    return claimed


def _ended(document: JobDocument) -> JobDocument:
    assert document.claim is not None
    ending = AttemptResult(document.token, document.claim.id, AttemptOutcome.OK, exit_code=0, host="h")
    verdict = end(document, ending, now=CLOCK.now(), by="p-1")
    assert isinstance(verdict, Applied), verdict
    return verdict.document


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    took: dict[str, list[tuple[float, float]]] = {}
    async with whole_site(own=True) as site:
        stores = open_stores(site.store)
        await stores.jobs.open()
        for number in range(-1, args.rounds):
            jobs = args.jobs if number >= 0 else 10 * CHUNK
            for arm in ("documents", "chunks"):
                scatter = Scatter(site, stores, jobs)
                accept, run = (
                    (scatter.accept_documents, scatter.run_documents)
                    if arm == "documents"
                    else (scatter.accept_chunk, scatter.run_chunk)
                )
                spent = await scatter.spent(accept), await scatter.spent(run)
                if number >= 0:
                    took.setdefault(f"accept {arm}", []).append(spent[0])
                    took.setdefault(f"run {arm}", []).append(spent[1])
                    print(f"{arm}: accepted {spent[0]}, run {spent[1]}", file=sys.stderr)
        await stores.jobs.close()
    seconds = {arm: [run[0] for run in runs] for arm, runs in took.items()}
    cpu = {arm: [run[1] for run in runs] for arm, runs in took.items()}
    whole = {
        arm: [a + b for a, b in zip(cpu[f"accept {arm}"], cpu[f"run {arm}"], strict=True)]
        for arm in ("documents", "chunks")
    }
    figures = {"load": os.getloadavg()[0], "seconds": seconds, "cpu microseconds a job": cpu}
    path = keep("chunks", [], figures)
    print(f"raw runs in {path}", file=sys.stderr)
    print(
        f"chunks: {args.jobs} jobs accepted {paired(seconds['accept documents'], seconds['accept chunks'])} × as fast, "
        f"CPU of it {statistics.median(cpu['accept documents']):.0f} µs a job as documents, {statistics.median(cpu['accept chunks']):.1f} as chunks; "
        f"accepted, claimed and ended {statistics.median(whole['documents']):.0f} and {statistics.median(whole['chunks']):.0f} µs, {paired(whole['chunks'], whole['documents'])} ×"
    )
    leave(reached=True)


if __name__ == "__main__":
    uvloop.run(main())
