"""The register of peers; recognises them by the tokens that they send.

There is one document for each peer of the domain. Every server has a copy of the register, at most some seconds old: a token is verified without reading the store, and a
removed peer is refused as soon as the copy is refreshed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from forestay.domain.peers.peer import Peer
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict, NotFound, PortError
from forestay.ports.operations.identity import BadToken, Principal, Role
from forestay.ports.peers.peer import PeerTokens
from forestay.services.shared.document_update import update_document

KIND, REMOVED = "peer", "peer-removed"
MOST = 1000
OWNER = "peer:"
"""The prefix of the owner of a peer's runs; the peer's name here follows."""
SHORT = 60
"""Seconds for which a verified token is cached."""


@dataclass(slots=True)
class PeerRegistry:
    """The service."""

    documents: DocumentStore
    clock: Clock
    tokens: PeerTokens
    every: float = 2.0
    _known: Mapping[str, Peer] = field(default_factory=dict)
    """The register's copy, by the name of each peer's key."""

    async def run(self) -> None:
        """Keep the copy fresh. While the store does not answer, the last copy is used."""
        while True:
            with suppress(PortError):
                await self.refresh()
            await asyncio.sleep(self.every)

    async def refresh(self) -> None:
        self._known = {self.tokens.name(peer.key): peer for peer in await self.all()}

    def caller(self, token: str) -> Principal | None:
        """On whose behalf a peer calls; None: this is not a token of a peer. `BadToken` if it is one that is not valid here."""
        issuer = self.tokens.issuer(token)
        if not issuer:
            return None
        peer = self._known.get(issuer)
        if peer is None:
            raise BadToken("the token is not signed by a peer of this domain; its administrator registers peers")
        who = self.tokens.verify(token, peer.key)
        tenant = peer.tenants.get(who.tenant)
        if tenant is None:
            raise BadToken("this domain accepts nothing from that tenant of the peer")
        ends = self.clock.now() // 1000 + SHORT
        return Principal(f"{OWNER}{peer.name}", tenant, frozenset({Role.SUBMITTER}), ends)

    def sender(self, who: Principal) -> Peer | None:
        """The calling peer; None: the caller belongs to this domain."""
        if not who.subject.startswith(OWNER):
            return None
        name = who.subject.removeprefix(OWNER)
        return next((peer for peer in self._known.values() if peer.name == name), None)

    @property
    def any_known(self) -> bool:
        """Whether a peer is registered."""
        return len(self._known) > 0

    async def all(self) -> Sequence[Peer]:
        """By name; up to a second old."""
        return [peer_of(stored.document.body) for stored in await self.documents.find(KIND)]

    async def removed(self) -> Sequence[Peer]:
        """The removed peers; their runs for us may still have to be moved."""
        return [peer_of(stored.document.body) for stored in await self.documents.find(REMOVED)]

    async def get(self, name: str) -> Peer | None:
        """A registered peer; realtime."""
        stored = (await self.documents.get([_name(name)])).get(_name(name))
        return peer_of(stored.document.body) if stored is not None and stored.document.kind == KIND else None

    async def put(self, peer: Peer) -> Peer:
        """Register a peer, or change its registration. `Permanent` if its key is not a key, `Conflict` if it is our own, or another peer's."""
        named = self.tokens.name(peer.key)
        if named == self.tokens.name(self.tokens.public):
            raise Conflict(
                "this is this domain's own key; the other domain's `forestay peers key` prints the right one"
            )
        others = [row for row in await self.all() if row.name != peer.name]
        if any(self.tokens.name(other_peer.key) == named for other_peer in others):
            raise Conflict("another peer is registered with this key")
        if len(others) >= MOST:
            raise Conflict(f"a domain has at most {MOST} peers")
        await self._write(peer.name, lambda _stored: Document(_name(peer.name), "", KIND, _body(peer)))
        await self.refresh_soon(peer)
        return peer

    async def remove(self, name: str) -> None:
        """Remove a peer: its tokens are no longer valid, and nothing more is sent there. `NotFound`."""

        def gone(stored: StoredDocument | None) -> Document:
            if stored is None or stored.document.kind != KIND:
                raise NotFound(f"there is no peer {name}")
            return Document(_name(name), "", REMOVED, stored.document.body)

        await self._write(name, gone)
        self._known = {key: peer for key, peer in self._known.items() if peer.name != name}

    async def _write(self, name: str, change: Callable[[StoredDocument | None], Document]) -> None:
        unsure = "the peer could not be stored; try again"
        await update_document(self.documents, _name(name), lambda stored: (change(stored), None), unsure=unsure)

    async def refresh_soon(self, peer: Peer) -> None:
        """Put a change into the copy that a search would not show yet."""
        kept = {key: other_peer for key, other_peer in self._known.items() if other_peer.name != peer.name}
        self._known = kept | {self.tokens.name(peer.key): peer}


def _name(peer: str) -> str:
    return f"peer:{peer}"


def _body(peer: Peer) -> Mapping[str, object]:
    return asdict(replace(peer, tenants=dict(peer.tenants))) | {"sends": sorted(peer.sends)}


def peer_of(body: Mapping[str, object]) -> Peer:
    known = cast("dict[str, Any]", dict(body))
    return Peer(**(known | {"sends": frozenset(known["sends"])}))
