"""Keeps the launches of site agents: one document a launch, one version-checked write a change.

Open launches of a site are found by a kind of their own. An ended one moves to the kind of the six hours in which it ended, so that
what is looked through stays small for ever; its name stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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
SLICE = 6 * 3_600_000
"""Milliseconds: launches that ended in the same six hours are found together."""


@dataclass(slots=True)
class PilotLaunches:
    """The service."""

    documents: DocumentStore
    clock: Clock

    async def plan(self, tenant: str, site: str, wanted: Mapping[str, str]) -> Mapping[str, Launch]:
        """Write launches down, by id with their sizes. One that stands already stays as it is: a plan may be repeated.

        `Transient`: one of them is not written for sure; ask again with the same ids.
        """
        now = self.clock.now()
        fresh = [
            Launch(id=one, tenant=tenant, site=site, size=size, planned=now, changed=now, tried=now)
            for one, size in wanted.items()
        ]
        results = await self.documents.put([(_document(one), None) for one in fresh])
        written = {one.id: one for one, result in zip(fresh, results, strict=True) if isinstance(result, Written)}
        others = [one for one in wanted if one not in written]
        if others:
            stored = await self._get(tenant, site, others)
            if len(stored) < len(others):
                raise Transient("the launches could not be stored; try again")
            written |= {one: launch for one, (launch, _) in stored.items()}
        return written

    async def report(
        self, tenant: str, site: str, reports: Sequence[LaunchReport]
    ) -> Mapping[str, Launch | NotNext | None]:
        """Write down what an agent tells; by id what stands then, why it cannot be, or None where there is no such launch."""

        def telling(one: LaunchReport) -> Callable[[Launch], Launch | NotNext]:
            return lambda launch: told(launch, one, now=self.clock.now())

        return await self._change(tenant, site, {one.launch: telling(one) for one in reports})

    async def registered(self, tenant: str, site: str, launch: str, pilot: str) -> Launch | None:
        """Write down that a launch's pilot is there. None: there is no such launch."""
        changes = {launch: lambda known: registered(known, pilot, now=self.clock.now())}
        changed = (await self._change(tenant, site, changes))[launch]
        return changed if isinstance(changed, Launch) else None

    async def cancel(self, launch: Launch) -> None:
        """Write down that its batch job is to be cancelled, if it has not ended."""

        def marked(known: Launch) -> Launch:
            return known if known.state is LaunchState.ENDED or known.cancel else replace(known, cancel=True)

        await self._change(launch.tenant, launch.site, {launch.id: marked})

    async def get(self, tenant: str, site: str, launch: str) -> Launch | None:
        """As it stands now."""
        found = (await self._get(tenant, site, [launch])).get(launch)
        return None if found is None else found[0]

    async def open(self, tenant: str, site: str) -> Sequence[Launch]:
        """Every launch of a site that has not ended, at most 10,000; up to a second old."""
        return _read(await self.documents.find(_open_kind(tenant, site)))

    async def ended(self, tenant: str, site: str) -> Sequence[Launch]:
        """The launches that ended in the last six hours, and more; up to a second old."""
        now = self.clock.now()
        slices = [await self.documents.find(_ended_kind(tenant, site, at)) for at in (now - SLICE, now)]
        return [one for found in slices for one in _read(found)]

    async def _get(self, tenant: str, site: str, ids: Iterable[str]) -> dict[str, tuple[Launch, StoredDocument]]:
        names = {_name(tenant, site, one): one for one in ids}
        found = await self.documents.get(list(names))
        return {names[name]: (launch_from_plain(tenant, one.document.body), one) for name, one in found.items()}

    async def _change(
        self, tenant: str, site: str, changes: Mapping[str, Callable[[Launch], Launch | NotNext]]
    ) -> Mapping[str, Launch | NotNext | None]:
        answers: dict[str, Launch | NotNext | None] = {}
        for _ in range(TRIES):
            waiting = [one for one in changes if one not in answers]
            if not waiting:
                return answers
            stored = await self._get(tenant, site, waiting)
            writes: list[tuple[Launch, StoredDocument]] = []
            for one in waiting:
                if one not in stored:
                    answers[one] = None
                    continue
                before, at = stored[one]
                after = changes[one](before)
                if isinstance(after, NotNext) or after == before:
                    answers[one] = after
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
    return f"launch-ended:{tenant}:{site}:{at // SLICE}"


def _document(launch: Launch) -> Document:
    over = launch.state is LaunchState.ENDED
    kind = _ended_kind(launch.tenant, launch.site, launch.changed) if over else _open_kind(launch.tenant, launch.site)
    return Document(_name(launch.tenant, launch.site, launch.id), launch.tenant, kind, launch_to_plain(launch))


def _read(found: Iterable[StoredDocument]) -> list[Launch]:
    return [launch_from_plain(one.document.tenant, one.document.body) for one in found]
