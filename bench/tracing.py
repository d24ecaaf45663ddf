"""What traces cost on the path of claims and ends: CPU of this process for each job, by the checked writer on a new SQLite file.

    just bench tracing --jobs 3000 --rounds 7

Arms, in turn: `none` (the writer alone), `off` (as a server is wired without `otlp`), `on` (spans sent by OTLP to a notification channel in another process that throws them
away). CPU is compared, since it says the same on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

from bench.harness import keep, paired
from bench.opensearch_adapter import make_jobs
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.apps.compose.components import make_components
from forestay.apps.config.settings import Settings
from forestay.domain.jobs.claim import claim, end, leave_failure
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument
from forestay.ports.jobs.job_store import DocumentChange, Stored, Written
from forestay.services.shared.checked_writer import CheckedWriter, ProposedWrite, WriteApplied

BULK = 100
ARMS = ("none", "off", "on")


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def sink(connection: Connection) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Sink)
    connection.send(server.server_address[1])
    server.serve_forever()


def _claimed(document: JobDocument, name: str) -> object:
    return claim(document, claim_id=name, pilot="p", host="h", now=document.created + 1000)


def _ended(document: JobDocument) -> object:
    held = document.claim
    assert held is not None
    result = AttemptResult(document.token, held.id, AttemptOutcome.OK, started=held.granted, wall=0.5)
    done = end(document, result, now=held.granted + 600, by="p", answer=leave_failure)
    return getattr(done, "document", done)


async def one(arm: str, jobs: int, url: str) -> float:
    """CPU-microseconds a job, of a claim and an end."""
    with tempfile.TemporaryDirectory() as folder:
        if arm == "none":
            store = SqlJobStore(f"sqlite:///{folder}/jobs.db")
            writer = CheckedWriter(store)
        else:
            settings = Settings(state=Path(folder), otlp=url if arm == "on" else "")
            parts = make_components(settings)
            store, writer = parts.store, parts.writer  # type: ignore[assignment]
        await store.open()
        known: list[Stored] = []
        for first in range(0, jobs, 1000):
            made = make_jobs(first, min(1000, jobs - first))
            for document, result in zip(
                made, await store.write([DocumentChange(job, None) for job in made]), strict=True
            ):
                assert isinstance(result, Written)
                known.append(Stored(document, result.version))
        began = time.process_time()
        for first in range(0, jobs, BULK):
            some = known[first : first + BULK]
            writes = [
                ProposedWrite(job.document.id, partial(_claimed, name=f"{first + n:032x}"), lambda _d: False, known=job)  # type: ignore[arg-type]
                for n, job in enumerate(some)
            ]
            held = [answer.stored for answer in await writer.write(writes) if isinstance(answer, WriteApplied)]
            assert len(held) == len(some)
            done = await writer.write(
                [ProposedWrite(job.document.id, _ended, lambda _d: False, known=job) for job in held]  # type: ignore[arg-type]
            )
            assert all(isinstance(answer, WriteApplied) for answer in done)
        if arm == "on" and parts.traces is not None:
            parts.traces.provider.shutdown()
        spent = time.process_time() - began
        await store.close()
    return 1e6 * spent / jobs


async def main() -> None:
    read = argparse.ArgumentParser()
    read.add_argument("--jobs", type=int, default=3000)
    read.add_argument("--rounds", type=int, default=7)
    args = read.parse_args()
    here, there = multiprocessing.Pipe()
    notification_channel = multiprocessing.Process(target=sink, args=(there,), daemon=True)
    notification_channel.start()
    url = f"http://127.0.0.1:{here.recv()}"
    seen: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for turn in range(args.rounds):
        for place in range(len(ARMS)):
            arm = ARMS[(turn + place) % len(ARMS)]
            seen[arm].append(await one(arm, args.jobs, url))
    notification_channel.terminate()
    middle = {arm: statistics.median(each) for arm, each in seen.items()}
    ratios = {f"{arm} over none": paired(seen[arm], seen["none"]) for arm in ("off", "on")}
    path = keep("tracing", [], {"CPU µs a job": seen})
    print(f"raw runs in {path}", file=sys.stderr)
    print(
        f"tracing: {middle['none']:.0f} µs of CPU a job for a claim and an end; {ratios['off over none']} × as it is wired without a notification channel, "
        f"{ratios['on over none']} × with spans sent ({middle['on']:.0f} µs)"
    )


if __name__ == "__main__":
    asyncio.run(main())
