"""Removes what is stored beside jobs and incidents once it is old: idempotency keys, records of runs, launches, placements, runs of other engines, and the like.

What has an age is removed by its age; what belongs to a run, when the run and all above it are over; what a person wrote about an error, when no incident of that error is
left. `services.operations.stored_kinds` lists every kind with its remover.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from forestay.domain.pilots.pilot import PilotState
from forestay.ports.clock import Clock
from forestay.ports.documents import DocumentStore, StoredDocument
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.ports.jobs.job_store import JobQuery, JobStore, Record
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.data.stored_catalogue import EMPTY as NO_REPLICA
from forestay.services.exceptions.engines.engine_commands import ENDED_KIND, RUN_KIND
from forestay.services.exceptions.engines.engine_event_intake import EVENT as ENGINE_EVENT
from forestay.services.exceptions.inbox.error_triages import KIND as TRIAGE
from forestay.services.exceptions.inbox.inbox_actions import KIND as INBOX_ACTION
from forestay.services.exceptions.safeguards.approvals import ANSWERED, ASKED, DONE
from forestay.services.flows.questions import OPEN as QUESTION
from forestay.services.flows.run_liveness import RunLiveness
from forestay.services.insertion.wes_run_starter import RUN as WES_RUN
from forestay.services.insertion.wes_runs import CANCEL as WES_CANCEL
from forestay.services.insertion.wes_runs import END as WES_END
from forestay.services.jobs.job_submitter import job_named
from forestay.services.operations.batch_pause import BatchPause
from forestay.services.operations.retention import BULK
from forestay.services.operations.token_revocations import SESSION, TOKEN
from forestay.services.peers.peer_links import EVENT as PEER_EVENT
from forestay.services.peers.run_placement import OVER as PLACING_OVER
from forestay.services.pilots.neighbour_registry import KIND as NEIGHBOURS
from forestay.services.pilots.pilot_launches import ENDED as LAUNCH_ENDED
from forestay.services.pilots.pilot_launches import SLICE as LAUNCH_SLICE
from forestay.services.pilots.pilot_revocations import KIND as REVOKED_PILOT
from forestay.services.shared.quarantine import Quarantine
from forestay.services.shared.record_pages import record_pages

AGED = ("alert", "order", PEER_EVENT, REVOKED_PILOT, SESSION)
"""Kinds of records that are not needed once they are as old as the jobs that are kept, whatever they are about. Revocations of pilots and of sessions have expired within a day."""
OF_INCIDENTS = (ASKED, ANSWERED, DONE)
"""Kinds of records that are kept as long as incidents."""
OF_RUNS = ("run-event", "worklet", "listing", "listing-page", WES_RUN, WES_END, WES_CANCEL)
"""Kinds of records beside a run; most are removed with the jobs of the run, but a run may have none."""
KEY = "key"

Over = Callable[[str, str, int], Awaitable[bool]]


@dataclass(slots=True)
class RecordPruner:
    """The service."""

    store: JobStore
    documents: DocumentStore
    incidents: IncidentStore
    pilots: PilotStore
    clock: Clock
    engine: FlowEngine | None = None
    """Knows whether runs have ended; None: nothing of any run is removed."""
    troubled: Callable[[str], None] = lambda _text: None
    quarantine: Quarantine = field(default_factory=Quarantine)

    async def prune(self, before: int, pause: BatchPause) -> int:
        """Remove what is as old as the jobs that are removed; returns how many documents and records."""
        removed = await self.store.drop_records(before, kinds=AGED)
        removed += await self._launches(before, pause)
        removed += await self._engine_runs(before, pause)
        removed += await self._neighbours()
        removed += await self._remove(await self.documents.find(NO_REPLICA))
        removed += await self._tokens(self.clock.now())
        if self.engine is not None:
            over = RunLiveness(self.engine, self.store, self.documents).over
            removed += await self._of_runs(before, over, pause)
            removed += await self._questions(before, over)
            removed += await self._placings(over)
        return removed

    async def prune_beside_incidents(self, before: int) -> int:
        """Remove what is kept as long as incidents."""
        removed = await self.store.drop_records(before, kinds=OF_INCIDENTS)
        actions = await self.documents.find(INBOX_ACTION)
        removed += await self._remove([stored for stored in actions if _number(stored, "at") < before])
        old: list[StoredDocument] = []

        async def look_at(stored: StoredDocument) -> None:
            fingerprint = stored.document.id.rpartition(":")[2]
            query = IncidentQuery(stored.document.tenant, fingerprint=fingerprint)
            if _number(stored, "at") < before and not await self.incidents.count(query, by="kind"):
                old.append(stored)

        await self._each(await self.documents.find(TRIAGE), look_at)
        return removed + await self._remove(old)

    async def prune_keys(self, before: int, pause: BatchPause) -> int:
        """Remove idempotency keys of that age none of whose jobs is there any more."""
        removed = 0
        async with aclosing(record_pages(self.store, kind=KEY, size=BULK)) as pages:
            async for page in pages:
                old: list[str] = []

                async def look_at(record: Record, old: list[str] = old) -> None:
                    if not await self._has_jobs(record):
                        old.append(record.id)

                later = await self.quarantine.each(
                    [record for record in page if record.at < before],
                    look_at,
                    name=lambda record: record.id,
                    troubled=self.troubled,
                )
                if old:
                    # With the age: a key that was used again since a search found it is another one.
                    removed += await self.store.drop_records(before, ids=old)
                if later is not None:
                    raise later
                if page[-1].at >= before:
                    break
                await pause.rest()
        return removed

    async def _has_jobs(self, record: Record) -> bool:
        body = record.body
        by, key = body.get("by"), body.get("key")
        if by is None or key is None:
            return False  # of an earlier release, which did not store how its jobs are named
        count = int(str(body["jobs"]))
        for start in range(0, count, BULK):
            places = range(start, min(count, start + BULK))
            if await self.store.get([job_named(record.tenant, str(by), str(key), place) for place in places]):
                return True
        return False

    # Of runs

    async def _of_runs(self, before: int, over: Over, pause: BatchPause) -> int:
        removed = 0
        for kind in OF_RUNS:
            async with aclosing(record_pages(self.store, kind=kind, size=BULK)) as pages:
                async for page in pages:
                    runs = {record.job: record for record in page if record.at < before}
                    gone: list[str] = []

                    async def look_at(record: Record, gone: list[str] = gone) -> None:
                        if await over(record.job, record.tenant, record.at):
                            gone.append(record.job)

                    await self._each(runs.values(), look_at)
                    if gone:
                        removed += await self.store.drop_records(before, jobs=gone)
                    if page[-1].at >= before:
                        break
                    await pause.rest()
        return removed

    async def _questions(self, before: int, over: Over) -> int:
        """Questions of runs that were terminated from outside, and so could not withdraw them."""
        old: list[StoredDocument] = []

        async def look_at(stored: StoredDocument) -> None:
            asked = _number(stored, "asked")
            if asked < before and await over(str(stored.document.body["run"]), stored.document.tenant, asked):
                old.append(stored)

        await self._each(await self.documents.find(QUESTION), look_at)
        return await self._remove(old)

    async def _placings(self, over: Over) -> int:
        """Finished placements of which neither the parent run nor a job is left: as long as there is one, the placement tells which run is above it."""
        found = await self.documents.find(PLACING_OVER)
        placed = {str(stored.document.body["run"]) for stored in found if "parent" in stored.document.body}
        old: list[StoredDocument] = []

        async def look_at(stored: StoredDocument) -> None:
            body, tenant = stored.document.body, stored.document.tenant
            if "parent" not in body:  # a run that was left behind when its sub-flow was placed anew
                if str(body["key"]).rpartition(":")[0] not in placed:
                    old.append(stored)
            elif await over(str(body["parent"]), tenant, 0) and not await self.store.count(
                JobQuery(tenant, anyof={"run": [str(body["run"])]}), by="state"
            ):
                old.append(stored)

        await self._each(found, look_at)
        return await self._remove(old)

    # Of other engines

    async def _engine_runs(self, before: int, pause: BatchPause) -> int:
        """Runs of other engines that ended, or of which nothing was heard, since then; with their events and commands."""
        removed = 0
        for kind in await self.documents.kinds(RUN_KIND):
            found = await self.documents.find(kind)
            for start in range(0, len(found), BULK):
                old: list[StoredDocument] = []

                async def look_at(stored: StoredDocument, old: list[StoredDocument] = old) -> None:
                    ended = stored.document.body.get("ended")
                    if stored.document.kind == ENDED_KIND and ended is not None:
                        heard = int(str(ended))
                    else:
                        newest = await self.store.find_records(
                            kind=ENGINE_EVENT, job=_engine_run(stored), tenant=stored.document.tenant, newest_first=True, limit=1
                        )  # fmt: skip
                        heard = newest[0].at if newest else 0
                    if heard < before:
                        old.append(stored)

                await self._each(found[start : start + BULK], look_at)
                if old:
                    # The run goes last: as long as it is there, a removal that broke off is found and repeated.
                    removed += await self.store.drop_records(before, jobs=[_engine_run(stored) for stored in old])
                    removed += await self._remove(old)
                await pause.rest()
        return removed

    # Of pilots

    async def _launches(self, before: int, pause: BatchPause) -> int:
        """Launches that ended, which are found by the six hours in which they did."""
        removed = 0
        for kind in await self.documents.kinds(f"{LAUNCH_ENDED}:"):
            if (int(kind.rpartition(":")[2]) + 1) * LAUNCH_SLICE < before:
                removed += await self._remove(await self.documents.find(kind))
                await pause.rest()
        return removed

    async def _neighbours(self) -> int:
        """Lists of pilots on a host of which none is there any more."""
        found = await self.documents.find(NEIGHBOURS)
        if not found:
            return 0
        # Read after the lists: a pilot is stored before it is put on a list, and a list that changed since stays.
        await self.store.refresh()
        there = {
            pilot.id
            for state in PilotState
            if state is not PilotState.GONE
            for pilot in await self.pilots.find_pilots(state=state.value)
        }
        return await self._remove([stored for stored in found if there.isdisjoint(_areas(stored))])

    # Of people

    async def _tokens(self, now: int) -> int:
        """Revocations of single tokens that have expired since. That of a person's tokens stays: it says nothing of when the last of them expires."""
        removed = 0
        async with aclosing(record_pages(self.store, kind=TOKEN, size=BULK)) as pages:
            async for page in pages:
                expired = [
                    record.id
                    for record in page
                    if "expires" in record.body and 1000 * int(str(record.body["expires"])) < now - 86_400_000
                ]
                if expired:
                    removed += await self.store.drop_records(now, ids=expired)
        return removed

    async def _each(
        self, entries: Iterable[StoredDocument | Record], look_at: Callable[..., Awaitable[object]]
    ) -> None:
        later = await self.quarantine.each(entries, look_at, name=_name, troubled=self.troubled)
        if later is not None:
            raise later

    async def _remove(self, old: Sequence[StoredDocument]) -> int:
        removed = 0
        for start in range(0, len(old), BULK):
            removed += await self.documents.remove(old[start : start + BULK])
        return removed


def _name(entry: StoredDocument | Record) -> str:
    return entry.document.id if isinstance(entry, StoredDocument) else entry.id


def _number(stored: StoredDocument, name: str) -> int:
    return int(str(stored.document.body[name]))


def _areas(stored: StoredDocument) -> Iterable[str]:
    areas = stored.document.body.get("areas")
    return areas if isinstance(areas, dict) else ()


def _engine_run(stored: StoredDocument) -> str:
    return stored.document.id.removeprefix(f"{RUN_KIND}:")
