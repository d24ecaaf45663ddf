"""Events from outside, and the tasks that wait for them.

One document holds everything for one name and key, written over the version that was read. So an event and a wait cannot miss each other: the second
writer sees the first. An event goes to every task that waits for it at that moment; if none does, it is kept for a week for the first that will.

An event assigned to a wait stays in the document until its run has taken it. A server that dies before it told the run leaves a document of another kind, which
reconcilers search for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from forestay.domain.flows.events import EventArrived
from forestay.ports.clock import Clock, Ids
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import NotFound, Permanent, Transient
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.services.shared.document_update import update_document
from forestay.services.shared.polling import poll_forever
from forestay.services.shared.quarantine import Quarantine

KEPT_EVENTS = "external-events"
DUE = "external-events-due"
"""The kind of documents that mark runs still to be told."""
RETAINED = 7 * 86_400_000
"""Milliseconds for which an event without a waiting task is kept."""
MOST_EVENTS = 100
"""The most events and ids that are kept for one name and key; the oldest are dropped first."""
MOST_WAITS = 500
MAX_DATA = 4096
"""Bytes of an event's data as JSON: they become the outputs of a task."""
NEVER = 2**53
EVERY = 5.0


class SentEvent(NamedTuple):
    """The outcome of sending an event."""

    id: str
    runs: tuple[str, ...]
    """The runs that waited for it; empty: it is kept for the first that will."""
    repeated: bool


@dataclass(slots=True)
class ExternalEvents:
    """The service."""

    documents: DocumentStore
    clock: Clock
    ids: Ids
    engine: FlowEngine | None
    every: float = EVERY
    troubled: Callable[[str], None] = lambda _text: None
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""

    async def send(
        self, tenant: str, event: str, key: str, data: Mapping[str, Any], *, by: str, id_: str = ""
    ) -> SentEvent:
        """Deliver an event to the waiting tasks, or keep it. The same id again from the same sender is the same event. `Permanent`: its data are too large."""
        if len(orjson.dumps(dict(data))) > MAX_DATA:
            raise Permanent(f"the event's data have more than {MAX_DATA} bytes as JSON; put them into a file")
        known, now = id_ or self.ids.job(), self.clock.now()

        def change(box: dict[str, Any]) -> SentEvent | None:
            # Ids are their sender's own: with the id of somebody else's event, which may be guessed, nobody can keep it out.
            mark = [by, known]
            if mark in box["seen"]:
                return None
            arrived = {"id": known, "by": by, "at": now, "data": dict(data)}
            open_ = [wait for wait in box["waits"] if wait["event"] is None]
            for wait in open_:
                wait["event"] = arrived
            box["seen"] = [*box["seen"], mark][-MOST_EVENTS:]
            if not open_:
                box["events"] = [*box["events"], arrived][-MOST_EVENTS:]
            return SentEvent(known, tuple(wait["run"] for wait in open_), repeated=False)

        sent = await self._change(tenant, event, key, change) or SentEvent(known, (), repeated=True)
        await self._tell(tenant, event, key)
        return sent

    async def wait(self, tenant: str, event: str, key: str, *, run: str, work: str) -> EventArrived | None:
        """Record that a task waits; returns the event that it gets, if one came before. A repeat changes nothing. `Permanent`: too many wait."""

        def change(box: dict[str, Any]) -> dict[str, Any] | None:
            wait = next((wait for wait in box["waits"] if (wait["run"], wait["work"]) == (run, work)), None)
            if wait is None:
                if len(box["waits"]) >= MOST_WAITS:
                    raise Permanent(f"{MOST_WAITS} tasks wait for the event {event} already; give it a key")
                wait = {"run": run, "work": work, "event": box["events"].pop(0) if box["events"] else None}
                box["waits"].append(wait)
            taken: dict[str, Any] | None = wait["event"]
            return taken

        taken = await self._change(tenant, event, key, change)
        return None if taken is None else EventArrived(taken["at"], work, taken["id"], taken["by"], taken["data"])

    async def close(self, tenant: str, event: str, key: str, *, run: str, work: str) -> None:
        """Record that the task no longer waits."""

        def change(box: dict[str, Any]) -> None:
            box["waits"] = [wait for wait in box["waits"] if (wait["run"], wait["work"]) != (run, work)]

        await self._change(tenant, event, key, change)

    async def run(self) -> None:
        await poll_forever(self.look, self.every, self.troubled)

    async def look(self) -> None:
        """Tell runs of the events that another process could not deliver."""

        async def tell(stored: StoredDocument) -> None:
            body = stored.document.body
            await self._tell(stored.document.tenant, str(body["name"]), str(body["key"]))

        found = await self.documents.find(DUE)
        later = await self.quarantine.each(
            found, tell, name=lambda stored: f"events {stored.document.id}", troubled=self.troubled
        )
        if later is not None:
            raise later

    async def _tell(self, tenant: str, event: str, key: str) -> None:
        """Tell the runs to which events were assigned; one that has ended waits no longer. A repeat is harmless."""
        name = _name(tenant, event, key)
        stored = (await self.documents.get([name])).get(name)
        if stored is None or self.engine is None:
            return
        for wait in _box(stored, event, key)["waits"]:
            given = wait["event"]
            if given is None:
                continue
            arrived = EventArrived(given["at"], wait["work"], given["id"], given["by"], given["data"])
            try:
                await self.engine.tell_run(wait["run"], [arrived])
            except NotFound:
                await self.close(tenant, event, key, run=wait["run"], work=wait["work"])
            except Transient as error:
                self.troubled(f"run {wait['run']} cannot be told yet: {error}")

    async def _change(self, tenant: str, event: str, key: str, change: Callable[[dict[str, Any]], Any]) -> Any:
        name = _name(tenant, event, key)

        def changed(stored: StoredDocument | None) -> tuple[Document | None, Any]:
            now = self.clock.now()
            box = _box(stored, event, key)
            before = orjson.dumps(box)
            box["events"] = [kept for kept in box["events"] if kept["at"] > now - RETAINED]
            answer = change(box)
            if orjson.dumps(box) == before:
                return None, answer
            box["expires"] = NEVER if box["waits"] else now + RETAINED
            due = any(wait["event"] is not None for wait in box["waits"])
            return Document(name, tenant, DUE if due else KEPT_EVENTS, box), answer

        return await update_document(self.documents, name, changed, unsure="the event could not be stored; try again")


def _name(tenant: str, event: str, key: str) -> str:
    return f"external-events:{hashlib.sha256(orjson.dumps([tenant, event, key])).hexdigest()[:32]}"


def _box(stored: StoredDocument | None, event: str, key: str) -> dict[str, Any]:
    if stored is None:
        return {"name": event, "key": key, "waits": [], "events": [], "seen": [], "expires": 0}
    box: dict[str, Any] = orjson.loads(orjson.dumps(dict(stored.document.body)))
    return box
