"""Pilots and their heartbeats, in the same cluster as the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from forestay.adapters.opensearch.cluster import Cluster, to_json, version_of
from forestay.domain.pilots.pilot import HeartbeatPage, Pilot, PilotState
from forestay.formats.jobs.pilot_json import (
    heartbeat_page_from_json,
    heartbeat_page_to_json,
    pilot_from_json,
    pilot_to_json,
)
from forestay.formats.text.readable import Readable
from forestay.ports.jobs.job_store import MAX_PAGE, Version, WriteResult
from forestay.ports.pilots.pilot_store import StoredPilot

_log = structlog.get_logger(__name__)


class OpenSearchPilotStore:
    """Implements the port `PilotStore`. The job store opens and closes the cluster that both share."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.readable = Readable(lambda name, why: _log.error("a document cannot be read", document=name, why=why))
        self._shown: set[str] = set()
        """Heartbeat pages written here that are visible to searches."""

    async def put_pilot(self, pilot: Pilot, expected: Version | None) -> WriteResult:
        line = (pilot.id, expected, to_json(pilot_to_json(pilot), f"pilot {pilot.id!r}"))
        return (await self._cluster.write("pilots", [line]))[0]

    async def get_pilot(self, pilot: str) -> StoredPilot | None:
        hits = await self._cluster.get("pilots", [pilot])
        return StoredPilot(pilot_from_json(hits[0]["_source"]), version_of(hits[0])) if hits else None

    async def find_pilots(
        self, *, tenant: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Sequence[Pilot]:
        wanted = {"tenant": tenant, "state": state}
        body: dict[str, Any] = {
            "query": {
                "bool": {"filter": [{"term": {name: value}} for name, value in wanted.items() if value is not None]}
            },
            "sort": [{"registered": {"order": "desc"}}, {"id": {"order": "asc"}}],
            "size": limit or MAX_PAGE,
            "track_total_hits": False,
        }
        found: list[Mapping[str, Any]] = []
        while True:
            page = (await self._cluster.search("pilots", body))["hits"]["hits"]
            found += page
            if limit is not None or len(page) < MAX_PAGE:
                break
            body["search_after"] = page[-1]["sort"]
        hits = ((hit["_id"], hit["_source"]) for hit in found)
        return self.readable.each(hits, pilot_from_json)

    async def drop_gone(self, before: int) -> int:
        gone = [{"term": {"state": PilotState.GONE.value}}, {"range": {"registered": {"lt": before}}}]
        return await self._cluster.remove_where("pilots", {"bool": {"filter": gone}})

    async def put_heartbeat_page(self, heartbeat_page: HeartbeatPage) -> None:
        name = f"{heartbeat_page.server}/{heartbeat_page.bucket}"
        body = to_json(heartbeat_page_to_json(heartbeat_page) | {"heartbeat_page": name}, f"heartbeat page {name!r}")
        await self._cluster.overwrite("heartbeats", name, body)
        if name not in self._shown:
            # Once visible, a heartbeat page is found by any search, and its newest content is read without a refresh.
            await self._cluster.refresh("heartbeats")
            self._shown.add(name)

    async def heartbeat_pages(self, *, fresh: bool = False, but_of: str = "") -> Sequence[HeartbeatPage]:
        heartbeat_pages = await self._heartbeat_pages(
            {"bool": {"must_not": {"term": {"server": but_of}}}} if but_of else {"match_all": {}}
        )
        if fresh and heartbeat_pages:
            # A refresh takes longer than anything else here, and a dead pilot's jobs wait for this result.
            hits = await self._cluster.get("heartbeats", [source["heartbeat_page"] for source in heartbeat_pages])
            heartbeat_pages = [hit["_source"] for hit in hits]
        return [heartbeat_page_from_json(source) for source in heartbeat_pages]

    async def drop_heartbeat_pages(self, server: str) -> None:
        await self._cluster.refresh("heartbeats")
        heartbeat_pages = await self._heartbeat_pages({"term": {"server": server}})
        names = [source["heartbeat_page"] for source in heartbeat_pages]
        await self._cluster.remove("heartbeats", names)
        # Otherwise a server that starts now would take the one that left for alive, and leave it its hash slots.
        await self._cluster.refresh("heartbeats")
        self._shown.difference_update(names)

    async def _heartbeat_pages(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        sources: list[dict[str, Any]] = []
        body: dict[str, Any] = {
            "query": query,
            "sort": [{"heartbeat_page": "asc"}],
            "size": 1000,
            "track_total_hits": False,
        }
        while True:
            hits = (await self._cluster.search("heartbeats", body))["hits"]["hits"]
            sources += [hit["_source"] for hit in hits]
            if len(hits) < body["size"]:
                return sources
            body["search_after"] = hits[-1]["sort"]
