"""Reports the lineage of jobs and runs: read from the store in the order of changes, sent at least once.

Its progress is a document, written after the events were sent. One of several reconcilers has the turn at a time; when it dies another continues from the document, and
repeats at most what was sent since. Events are derived from stored data, so a repeat is the same event.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from forestay.domain.jobs.job_document import FINAL, JobDocument, State
from forestay.domain.jobs.specification import Specification
from forestay.formats.provenance.open_lineage import job_events, run_events, run_id
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import PortError
from forestay.ports.flows.flow_engine import RunSummary
from forestay.ports.jobs.job_store import JobQuery, JobStore, Version, Written
from forestay.ports.operations.lineage import Lineage
from forestay.services.flows.flow_store import FlowStore
from forestay.services.shared.quarantine import Quarantine

DOCUMENT = "lineage:mark"
KIND = "lineage"
PAGE = 500
AT_ONCE = 16
OVERLAP = 30_000
"""Milliseconds by which each search overlaps the last: clocks differ and searches lag."""
TURN = 60_000
"""Milliseconds after which another reconciler takes over the turn of a silent one."""
REMEMBER = 100_000
LONGEST_WAIT = 60.0
_TOLD = frozenset({State.RUNNING}) | FINAL


class Runs(Protocol):
    """The source of runs."""

    async def moved(self, since: int) -> Sequence[RunSummary]:
        """The runs that were started, continued or ended at this time or later; `started` is when the run itself began."""
        ...


@dataclass(slots=True)
class LineageReporter:
    """The service."""

    store: JobStore
    documents: DocumentStore
    flows: FlowStore
    runs: Runs | None
    lineage: Lineage
    clock: Clock
    namespace: str
    me: str
    """The name of this process."""
    every: float = 2.0
    troubled: Callable[[str], None] = lambda _text: None
    sent: int = 0
    refused: int = 0
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""
    _done: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)
    """The events that were sent, by run and kind."""
    _specifications: OrderedDict[str, Specification] = field(default_factory=OrderedDict)

    async def run(self) -> None:
        wait = self.every
        while True:
            try:
                await self.look()
                wait = self.every
            except PortError as error:
                self.troubled(str(error))
                wait = min(2 * wait, LONGEST_WAIT)
            await asyncio.sleep(wait)

    async def look(self) -> None:
        """Report changes, if it is this reconciler's turn."""
        stored = (await self.documents.get([DOCUMENT])).get(DOCUMENT)
        now = self.clock.now()
        body = dict(stored.document.body) if stored is not None else {"jobs": now, "runs": now, "by": "", "until": 0}
        if body["by"] != self.me and cast("int", body["until"]) > now:
            return
        version = await self._write(body, stored)
        if version is None:
            return
        if self.runs is not None:
            since = cast("int", body["runs"])
            summaries = await self.runs.moved(since - OVERLAP)
            # A run that began long ago and still runs is found only because the engine continued it as new: its start was reported.
            new = [summary for summary in summaries if summary.ended is not None or summary.started >= since - OVERLAP]
            await self._send([run_events(summary, namespace=self.namespace) for summary in new])
            times = [at for summary in summaries for at in (summary.started, summary.ended or 0)]
            body["runs"] = min(now, max([since, *times]))
        query = JobQuery(states=_TOLD, at_least={"changed": cast("int", body["jobs"]) - OVERLAP})
        cursor: str | None = None
        while True:
            page = await self.store.search(query, sort="changed", limit=PAGE, cursor=cursor)
            documents = [job.document for job in page.jobs]
            await self._tell_jobs(documents)
            if documents:
                body["jobs"] = max(cast("int", body["jobs"]), min(documents[-1].changed, now))
            cursor = page.cursor
            version = await self._write(body, version)
            if version is None or cursor is None:
                return

    async def _write(self, body: dict[str, object], before: StoredDocument | Version | None) -> Version | None:
        """Record the progress and keep the turn; None: another reconciler has it."""
        expected = before.version if isinstance(before, StoredDocument) else before
        body_data = body | {"by": self.me, "until": self.clock.now() + TURN}
        (result,) = await self.documents.put([(Document(DOCUMENT, "", KIND, body_data), expected)])
        return result.version if isinstance(result, Written) else None

    async def _tell_jobs(self, documents: Sequence[JobDocument]) -> None:
        new = [document for document in documents if not self._told(document)]
        await self._know_specifications({document.specification for document in new})
        events = []

        async def describe(document: JobDocument) -> None:
            flow = await self.flows.name_of(document)
            spec = self._specifications.get(document.specification)
            events.append(job_events(document, spec, namespace=self.namespace, flow=flow))

        later = await self.quarantine.each(
            new, describe, name=lambda document: f"job {document.id}", troubled=self.troubled
        )
        if later is not None:
            raise later
        await self._send(events)

    async def _send(self, runs: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Send the events of each run in order, of several runs at once; events that were sent are left out."""
        due = [
            left
            for events in runs
            if (left := [event for event in events if (event["run"]["runId"], event["eventType"]) not in self._done])
        ]
        for start in range(0, len(due), AT_ONCE):
            some = due[start : start + AT_ONCE]
            self.refused += sum(await asyncio.gather(*(self.lineage.send(events) for events in some)))
            for event in (other_event for events in some for other_event in events):
                self.sent += 1
                self._done[event["run"]["runId"], event["eventType"]] = None
            while len(self._done) > REMEMBER:
                self._done.popitem(last=False)

    def _told(self, document: JobDocument) -> bool:
        kinds = ("COMPLETE", "FAIL", "ABORT") if document.final else ("START",)
        return any((run_id(document.id), kind) in self._done for kind in kinds)

    async def _know_specifications(self, names: set[str]) -> None:
        missing = sorted(names - self._specifications.keys())
        if missing:
            self._specifications |= await self.store.get_specifications(missing)
        while len(self._specifications) > max(REMEMBER // 10, len(names)):
            self._specifications.popitem(last=False)
