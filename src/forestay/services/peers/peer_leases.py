"""The leases of peers for which this domain runs work; stops that work when a lease has expired; see `domain.peers.peer`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.peers.peer import Peer, lease_end
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict, NotFound, PortError
from forestay.ports.flows.flow_engine import FlowEngine, RunQuery, RunSummary
from forestay.services.insertion.wes_runs import WesRuns
from forestay.services.peers.peer_registry import OWNER
from forestay.services.shared.document_update import update_document
from forestay.services.shared.quarantine import Quarantine

KIND = "peer-lease"
LAPSED = "lease"
"""The name under which runs of a peer are cancelled when its lease has lapsed."""
PAGE = 1000
OFTEN = 60_000
"""Milliseconds after the end of a lease in which its runs are searched at every poll; after that now and then, for those that were started late."""
SELDOM = 15.0
IDLE = 5.0
"""Seconds between polls while no peer ever held a lease; the shortest lease is longer."""


@dataclass(slots=True)
class PeerLeases:
    """The service."""

    documents: DocumentStore
    runs: WesRuns
    engine: FlowEngine
    clock: Clock
    every: float = 1.0
    troubled: Callable[[str], None] = lambda _text: None
    stopped: int = 0
    """Runs that were stopped because their lease had lapsed."""
    held: int = 0
    """Peers that ever held a lease."""
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""
    _looked: dict[str, float] = field(default_factory=dict)

    async def hold(self, peer: Peer, stamp: int) -> None:
        """Renew a lease by a returned stamp. `Conflict` if the lease has lapsed."""
        now = self.clock.now()
        # No peer can have a stamp that was not issued yet.
        end = lease_end(min(stamp, now), peer.lease)
        if end <= now:
            raise Conflict("the timestamp is too old: its lease has expired; request a new one")
        await self._set(peer.name, lambda until: max(until, end))

    async def end(self, peer: str) -> None:
        """End a peer's lease when it says good-bye."""
        await self._set(peer, lambda _until: 0)

    async def holds(self, peer: str) -> bool:
        stored = (await self.documents.get([_name(peer)])).get(_name(peer))
        return stored is not None and _until(stored) > self.clock.now()

    async def _set(self, peer: str, change: Callable[[int], int]) -> None:
        def changed(stored: StoredDocument | None) -> tuple[Document | None, None]:
            before = _until(stored) if stored is not None else -1
            after = change(before)
            document = Document(_name(peer), "", KIND, {"peer": peer, "until": after})
            return (document if after != before else None), None

        unsure = "the lease could not be stored; try again"
        await update_document(self.documents, _name(peer), changed, unsure=unsure)

    async def open(self, peer: str, tenant: str = "") -> Mapping[str, RunSummary]:
        """The open runs for a peer, including their sub-flows; by search, which lags by about a second."""
        summaries: dict[str, RunSummary] = {}
        cursor: str | None = None
        while True:
            page = await self.engine.find(
                RunQuery(tenant, owner=f"{OWNER}{peer}", open=True), limit=PAGE, cursor=cursor
            )
            summaries |= {summary.run: summary for summary in page.runs}
            cursor = page.cursor
            if cursor is None:
                return summaries

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except PortError as error:
                self.troubled(str(error))
            await asyncio.sleep(self.every if self.held else IDLE)

    async def look(self) -> None:
        """Stop the runs for peers whose leases have lapsed."""
        stored_documents = await self.documents.find(KIND)
        self.held = len(stored_documents)
        later = await self.quarantine.each(
            stored_documents, self._look_at, name=lambda stored: stored.document.id, troubled=self.troubled
        )
        if later is not None:
            raise later

    async def _look_at(self, stored: StoredDocument) -> None:
        peer, now = str(stored.document.body["peer"]), self.clock.now()
        if _until(stored) > now:
            self._looked.pop(peer, None)
            return
        long_ago = now - _until(stored) > OFTEN
        steady = self.clock.monotonic()
        if long_ago and steady - self._looked.get(peer, -SELDOM) < SELDOM:
            return
        # The document was found by search; a renewal since then counts.
        if not await self.holds(peer):
            await self._stop(peer)
            self._looked[peer] = steady

    async def _stop(self, peer: str) -> None:
        for run, known in (await self.open(peer)).items():
            await self.runs.note_cancel(known.tenant, run, LAPSED)
            verb = Verb(
                self.clock.now(),
                f"lapsed:{run}",
                VerbKind.FORCE_FAIL,
                by=f"{OWNER}{peer}",
                reason="the lease of the sending domain has expired",
            )
            with suppress(NotFound):
                await self.engine.send_verb(run, verb)
                self.stopped += 1


def _name(peer: str) -> str:
    return f"peer-lease:{peer}"


def _until(stored: StoredDocument) -> int:
    return int(str(stored.document.body["until"]))
