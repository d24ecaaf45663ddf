"""Pilots and their beats, in the same cluster as the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog

from forestay.adapters.opensearch.cluster import Cluster, to_json, version_of
from forestay.domain.pilots.pilot import HeartbeatPage, Pilot
from forestay.formats.jobs.pilot_json import pilot_from_json, pilot_to_json, sheet_from_json, sheet_to_json
from forestay.formats.text.readable import Readable
from forestay.ports.jobs.job_store import MAX_PAGE, Version, WriteResult
from forestay.ports.pilots.pilot_store import StoredPilot

_log = structlog.get_logger(__name__)


class OpenSearchPilotStore:
    """Fills the port `PilotStore`. The job store opens and closes the cluster that both share."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.readable = Readable(lambda name, why: _log.error("a document cannot be read", document=name, why=why))
        self._shown: set[str] = set()
        """Sheets written here that searches show."""

    async def put_pilot(self, pilot: Pilot, expected: Version | None) -> WriteResult:
        line = (pilot.id, expected, to_json(pilot_to_json(pilot), f"pilot {pilot.id!r}"))
        return (await self._cluster.write("pilots", [line]))[0]

    async def get_pilot(self, pilot: str) -> StoredPilot | None:
        hits = await self._cluster.get("pilots", [pilot])
        return StoredPilot(pilot_from_json(hits[0]["_source"]), version_of(hits[0])) if hits else None

    async def find_pilots(self, *, tenant: str | None = None, state: str | None = None) -> Sequence[Pilot]:
        wanted = {"tenant": tenant, "state": state}
        body = {
            "query": {"bool": {"filter": [{"term": {name: one}} for name, one in wanted.items() if one is not None]}},
            "sort": [{"registered": {"order": "desc"}}, {"id": {"order": "asc"}}],
            "size": MAX_PAGE,
            "track_total_hits": False,
        }
        answer = await self._cluster.search("pilots", body)
        hits = ((hit["_id"], hit["_source"]) for hit in answer["hits"]["hits"])
        return self.readable.each(hits, pilot_from_json)

    async def put_sheet(self, sheet: HeartbeatPage) -> None:
        name = f"{sheet.server}/{sheet.bucket}"
        body = to_json(sheet_to_json(sheet) | {"sheet": name}, f"sheet {name!r}")
        await self._cluster.overwrite("beats", name, body)
        if name not in self._shown:
            # Once shown, a sheet is found by any search, and its newest content is had without a refresh.
            await self._cluster.refresh("beats")
            self._shown.add(name)

    async def sheets(self, *, fresh: bool = False, but_of: str = "") -> Sequence[HeartbeatPage]:
        found = await self._sheets(
            {"bool": {"must_not": {"term": {"server": but_of}}}} if but_of else {"match_all": {}}
        )
        if fresh and found:
            # A refresh takes longer than anything else here, and a dead pilot's jobs wait for this answer.
            hits = await self._cluster.get("beats", [source["sheet"] for source in found])
            found = [hit["_source"] for hit in hits]
        return [sheet_from_json(source) for source in found]

    async def drop_sheets(self, server: str) -> None:
        await self._cluster.refresh("beats")
        found = await self._sheets({"term": {"server": server}})
        names = [source["sheet"] for source in found]
        await self._cluster.remove("beats", names)
        # Otherwise a server that starts now would take the one that left for alive, and leave it its slots.
        await self._cluster.refresh("beats")
        self._shown.difference_update(names)

    async def _sheets(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        body: dict[str, Any] = {"query": query, "sort": [{"sheet": "asc"}], "size": 1000, "track_total_hits": False}
        while True:
            hits = (await self._cluster.search("beats", body))["hits"]["hits"]
            found += [hit["_source"] for hit in hits]
            if len(hits) < body["size"]:
                return found
            body["search_after"] = hits[-1]["sort"]
