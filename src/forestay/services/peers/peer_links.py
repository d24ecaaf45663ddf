"""The state of the connection to each peer: the newest timestamp and when it was received, what the peer offers, whether it answers.

A stamp is recorded, with the time of its arrival, before it is used: so every process of this domain knows how long a lease held by any of them can last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from forestay.domain.peers.peer import Link, Peer
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.ports.peers.peer import PeerInfo
from forestay.services.shared.document_update import update_document

KIND = "peer-link"
EVENT = "peer-event"
AWAY = 3
"""Calls in a row without an answer after which no new run is sent to a peer."""


@dataclass(slots=True)
class PeerLinks:
    """The service."""

    documents: DocumentStore
    store: JobStore
    clock: Clock

    async def all(self, peers: Mapping[str, Peer]) -> Mapping[str, Link]:
        """The present links, by the peer's name."""
        stored_documents = await self.documents.get([_name(peer) for peer in peers]) if peers else {}
        return {name: _link(name, stored_documents.get(_name(name))) for name in peers}

    async def get(self, peer: str) -> Link:
        return _link(peer, (await self.documents.get([_name(peer)])).get(_name(peer)))

    async def heard(self, peer: str, peer_info: PeerInfo) -> Link:
        """Record an answer of the peer."""
        now = self.clock.now()

        def newer(link: Link) -> Link:
            since = link.since if link.connected else now
            if peer_info.stamp <= link.stamp:
                return replace(link, connected=True, since=since, failures=0)
            return Link(peer, peer_info.stamp, now, connected=True, since=since, offer=dict(peer_info.offer))

        before, after = await self._change(peer, newer)
        if not before.connected:
            await self.note(peer, "connected", f"{peer} answers", now)
        return after

    async def failed(self, peer: str, why: str) -> Link:
        """Record that the peer did not answer."""
        now = self.clock.now()

        def worse(link: Link) -> Link:
            failures = link.failures + 1
            away = link.connected and failures >= AWAY
            return replace(
                link, failures=failures, connected=link.connected and not away, since=now if away else link.since
            )

        _, after = await self._change(peer, worse)
        if after.failures == AWAY:
            # Also for a peer that never answered: the person who has just registered it needs the reason.
            await self.note(peer, "disconnected", why, now)
        return after

    async def left(self, peer: str, why: str) -> None:
        """Record that the connection was ended on purpose."""
        before, _ = await self._change(peer, lambda link: replace(link, connected=False, since=self.clock.now()))
        if before.connected:
            await self.note(peer, "disconnected", why, self.clock.now())

    async def note(self, peer: str, what: str, detail: str, at: int) -> None:
        """Add to the peer's events; a repeat changes nothing."""
        body = {"peer": peer, "what": what, "detail": detail[:500]}
        await self.store.add_records([Record(f"{EVENT}:{peer}:{what}:{at}", "", EVENT, peer, at, body)])

    async def _change(self, peer: str, change: Callable[[Link], Link]) -> tuple[Link, Link]:
        def changed(stored: StoredDocument | None) -> tuple[Document, tuple[Link, Link]]:
            before = _link(peer, stored)
            after = change(before)
            return Document(_name(peer), "", KIND, asdict(after) | {"offer": dict(after.offer)}), (before, after)

        unsure = "the link to the peer could not be stored"
        return await update_document(self.documents, _name(peer), changed, unsure=unsure)


def _name(peer: str) -> str:
    return f"peer-link:{peer}"


def _link(peer: str, stored: StoredDocument | None) -> Link:
    return Link(peer) if stored is None else Link(**cast("dict[str, Any]", dict(stored.document.body)))
