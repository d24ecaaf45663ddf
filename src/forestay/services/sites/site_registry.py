"""Stores the reports of site agents, and ensures that each site has one agent at a time.

At every poll an agent reports its presence, its site's policy, and its problems. Another agent for the same site is refused as long as
the first one may come back; the same agent continues at once after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict
from forestay.services.shared.coalescing_cache import CoalescingCache
from forestay.services.shared.document_update import update_document

KIND = "site"
PATIENCE = 4
"""The number of its own polls that an agent may miss before another one may replace it."""
LEAST = 60
"""Seconds: and never less than this."""
FRESH = 2.0
"""Seconds for which a site's way of running jobs is remembered."""
SITES = 10_000
SUBMITTER = "submitter"
"""What the agent of a site reports as `run_as` whose jobs run as the Unix users of those who submitted them."""


@dataclass(frozen=True, slots=True)
class Site:
    """A site as its agent reports it."""

    name: str
    agent: str
    """The agent's id, created once and kept in its spool."""
    host: str
    seen: int
    """Milliseconds since 1970, by the server's clock."""
    every: float
    """Seconds between its polls."""
    report: Mapping[str, object]
    """The policy and the agent's own state."""

    @property
    def as_submitter(self) -> bool:
        """Whether its jobs run as the Unix users of those who submitted them; otherwise as the agent's user."""
        return self.report.get("run_as") == SUBMITTER

    def overdue(self, now: int) -> bool:
        """Whether its agent has been silent for too long."""
        return now - self.seen > 1000 * max(LEAST, PATIENCE * self.every)


@dataclass(slots=True)
class SiteRegistry:
    """The service."""

    documents: DocumentStore
    clock: Clock
    _as_submitter: CoalescingCache[tuple[str, str], bool] = field(init=False)

    def __post_init__(self) -> None:
        self._as_submitter = CoalescingCache(self.clock, FRESH, SITES)

    async def bars(self, tenant: str, site: str, owner: str) -> bool:
        """Whether a pilot of an owner, or of nobody in particular, gets no jobs at a site; what its agent reports counts within seconds."""
        if owner:
            return False

        async def look() -> bool:
            known = await self.get(tenant, site)
            return known is not None and known.as_submitter

        return await self._as_submitter.get((tenant, site), look)

    async def hello(
        self, tenant: str, site: str, *, agent: str, host: str, every: float, report: Mapping[str, object]
    ) -> Site:
        """Record an agent's report. `Conflict`: another agent manages this site."""
        name = _name(tenant, site)

        def heard(stored: StoredDocument | None) -> tuple[Document, Site]:
            now = self.clock.now()
            known = None if stored is None else _site(stored.document.body)
            if known is not None and known.agent != agent and not known.overdue(now):
                raise Conflict(
                    f"another agent manages site {site}, on {known.host}; stop it first, or wait until it has been silent "
                    f"for {max(LEAST, PATIENCE * known.every):.0f} seconds"
                )
            returned_site = Site(site, agent, host, now, every, report)
            body = {"site": site, "agent": agent, "host": host, "seen": now, "every": every, "said": dict(report)}
            return Document(name, tenant, KIND, body), returned_site

        unsure = "the site could not be stored; try again"
        self._as_submitter.forget((tenant, site))
        return await update_document(self.documents, name, heard, unsure=unsure)

    async def get(self, tenant: str, site: str) -> Site | None:
        name = _name(tenant, site)
        stored = (await self.documents.get([name])).get(name)
        return None if stored is None else _site(stored.document.body)

    async def all(self, tenant: str) -> Sequence[Site]:
        """By name; up to a second old."""
        return [_site(stored.document.body) for stored in await self.documents.find(KIND, tenant=tenant)]


def _name(tenant: str, site: str) -> str:
    return f"site:{tenant}:{site}"


def _site(body: Mapping[str, object]) -> Site:
    report = body["said"]
    return Site(
        str(body["site"]),
        str(body["agent"]),
        str(body["host"]),
        int(str(body["seen"])),
        float(str(body["every"])),
        report if isinstance(report, Mapping) else {},
    )
