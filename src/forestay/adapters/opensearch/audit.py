"""The audit log, in the same cluster as the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forestay.adapters.opensearch.cluster import Cluster, to_json
from forestay.adapters.opensearch.create_only import create
from forestay.domain.exceptions.safeguards.audit import AuditPage
from forestay.formats.rules.audit_json import page_from_json, page_to_json
from forestay.ports.exceptions.audit import MAX_PAGES


class OpenSearchAuditStore:
    """Implements the port `AuditStore`. The job store opens and closes the cluster that both share."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def add(self, page: AuditPage) -> bool:
        body = to_json(page_to_json(page), f"page {page.number} of the audit log")
        (added,) = await create(self._cluster, "audit", [(_key(page.tenant, page.number), None, body)])
        return added

    async def get(self, tenant: str, numbers: Sequence[int]) -> Mapping[int, AuditPage]:
        hits = await self._cluster.get("audit", [_key(tenant, number) for number in numbers])
        pages = [page_from_json(hit["_source"]) for hit in hits]
        return {page.number: page for page in pages}

    async def last(self, tenant: str) -> AuditPage | None:
        pages = await self._pages(tenant, [], order="desc", limit=1)
        return pages[0] if pages else None

    async def find(self, tenant: str, *, entry: int, limit: int = 100) -> Sequence[AuditPage]:
        since = {"range": {"last": {"gte": entry}}}
        return await self._pages(tenant, [since], order="asc", limit=min(limit, MAX_PAGES))

    async def tenants(self) -> Sequence[str]:
        return await self._cluster.values("audit", "tenant", {"match_all": {}})

    async def remove_first(self, tenant: str, last: int) -> int:
        filters = [{"term": {"tenant": tenant}}, {"range": {"number": {"lte": last}}}]
        return await self._cluster.remove_where("audit", {"bool": {"filter": filters}})

    async def _pages(
        self, tenant: str, filters: Sequence[Mapping[str, Any]], *, order: str, limit: int
    ) -> Sequence[AuditPage]:
        body = {
            "query": {"bool": {"filter": [{"term": {"tenant": tenant}}, *filters]}},
            "sort": [{"last": {"order": order}}],
            "size": limit,
            "track_total_hits": False,
        }
        answer = await self._cluster.search("audit", body)
        return [page_from_json(hit["_source"]) for hit in answer["hits"]["hits"]]


def _key(tenant: str, number: int) -> str:
    return f"{tenant}:{number}"
