"""Stores the launches of site agents: one document for each launch, one version-checked write for each change.

Open launches of a site are found by a kind of their own. An ended one moves to the kind of the six hours in which it ended, so that
searches always remain small; its name stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from forestay.domain.sites.fleet import size_and_owner
from forestay.domain.sites.launch import (
    Launch,
    LaunchReport,
    LaunchState,
    NotNext,
    launch_from_plain,
    launch_to_plain,
    registered,
    told,
)
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import Written

TRIES = 10
ENDED = "launch-ended"
"""The kinds of ended launches begin with this, and end with the number of their slice."""
SLICE = 6 * 3_600_000
"""Milliseconds: launches that ended in the same six hours are found together."""


@dataclass(slots=True)
class PilotLaunches:
    """The service."""

    documents: DocumentStore
    clock: Clock

    async def plan(self, tenant: str, site: str, wanted: Mapping[str, str]) -> Mapping[str, Launch]:
        """Write launches down, by id with their sizes (`size_for` of those that are one owner's). One that stands already stays as it is: a plan may be repeated.

        `Transient`: for one of them the store gave no clear answer; repeat the call with the same ids.
        """
        now = self.clock.now()
        fresh = [
            Launch(id=launch, tenant=tenant, site=site, size=size, planned=now, changed=now, tried=now, owner=owner)
            for launch, (size, owner) in ((launch, size_and_owner(name)) for launch, name in wanted.items())
        ]
        results = await self.documents.put([(_document(launch), None) for launch in fresh])
        written = {
            launch.id: launch for launch, result in zip(fresh, results, strict=True) if isinstance(result, Written)
        }
        others = [name for name in wanted if name not in written]
        if others:
            stored = await self._get(tenant, site, others)
            if len(stored) < len(others):
                raise Transient("the launches could not be stored; try again")
            written |= {name: launch for name, (launch, _) in stored.items()}
        return written

    async def report(
        self, tenant: str, site: str, reports: Sequence[LaunchReport]
    ) -> Mapping[str, Launch | NotNext | None]:
        """Record an agent's reports; returns by id the resulting launch, why the report is impossible, or None where there is no such launch."""

        def telling(report: LaunchReport) -> Callable[[Launch], Launch | NotNext]:
            return lambda launch: told(launch, report, now=self.clock.now())

        return await self._change(tenant, site, {report.launch: telling(report) for report in reports})

    async def registered(self, tenant: str, site: str, launch: str, pilot: str) -> Launch | None:
        """Record that a launch's pilot has registered. None: there is no such launch."""
        changes = {launch: lambda known: registered(known, pilot, now=self.clock.now())}
        changed = (await self._change(tenant, site, changes))[launch]
        return changed if isinstance(changed, Launch) else None

    async def cancel(self, launch: Launch) -> None:
        """Request cancellation of the launch's batch job, if it has not ended."""

        def marked(known: Launch) -> Launch:
            return known if known.state is LaunchState.ENDED or known.cancel else replace(known, cancel=True)

        await self._change(launch.tenant, launch.site, {launch.id: marked})

    async def get(self, tenant: str, site: str, launch: str) -> Launch | None:
        """The present state of a launch."""
        launched = (await self._get(tenant, site, [launch])).get(launch)
        return None if launched is None else launched[0]

    async def open(self, tenant: str, site: str) -> Sequence[Launch]:
        """Every launch of a site that has not ended; up to a second old."""
        return _read(await self.documents.find(_open_kind(tenant, site)))

    async def ended(self, tenant: str, site: str) -> Sequence[Launch]:
        """The launches that ended in the last six hours, and more; up to a second old."""
        now = self.clock.now()
        slices = [await self.documents.find(_ended_kind(tenant, site, at)) for at in (now - SLICE, now)]
        return [launch for stored_documents in slices for launch in _read(stored_documents)]

    async def _get(self, tenant: str, site: str, ids: Iterable[str]) -> dict[str, tuple[Launch, StoredDocument]]:
        names = {_name(tenant, site, identifier): identifier for identifier in ids}
        stored_documents = await self.documents.get(list(names))
        return {
            names[name]: (launch_from_plain(tenant, stored_document.document.body), stored_document)
            for name, stored_document in stored_documents.items()
        }

    async def _change(
        self, tenant: str, site: str, changes: Mapping[str, Callable[[Launch], Launch | NotNext]]
    ) -> Mapping[str, Launch | NotNext | None]:
        answers: dict[str, Launch | NotNext | None] = {}
        for _ in range(TRIES):
            waiting = [change for change in changes if change not in answers]
            if not waiting:
                return answers
            stored = await self._get(tenant, site, waiting)
            writes: list[tuple[Launch, StoredDocument]] = []
            for name in waiting:
                if name not in stored:
                    answers[name] = None
                    continue
                before, at = stored[name]
                after = changes[name](before)
                if isinstance(after, NotNext) or after == before:
                    answers[name] = after
                else:
                    writes.append((after, at))
            results = await self.documents.put([(_document(after), at.version) for after, at in writes])
            for (after, _), result in zip(writes, results, strict=True):
                if isinstance(result, Written):
                    answers[after.id] = after
        if len(answers) < len(changes):
            raise Transient("the result of the write is unknown; report again")
        return answers


def _name(tenant: str, site: str, launch: str) -> str:
    return f"launch:{tenant}:{site}:{launch}"


def _open_kind(tenant: str, site: str) -> str:
    return f"launch:{tenant}:{site}"


def _ended_kind(tenant: str, site: str, at: int) -> str:
    return f"{ENDED}:{tenant}:{site}:{at // SLICE}"


def _document(launch: Launch) -> Document:
    over = launch.state is LaunchState.ENDED
    kind = _ended_kind(launch.tenant, launch.site, launch.changed) if over else _open_kind(launch.tenant, launch.site)
    return Document(_name(launch.tenant, launch.site, launch.id), launch.tenant, kind, launch_to_plain(launch))


def _read(stored_documents: Iterable[StoredDocument]) -> list[Launch]:
    return [
        launch_from_plain(stored_document.document.tenant, stored_document.document.body)
        for stored_document in stored_documents
    ]
