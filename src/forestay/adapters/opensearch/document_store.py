"""The document store, in the same cluster as the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forestay.adapters.opensearch.cluster import Cluster, to_json, version_of
from forestay.ports.documents import Document, StoredDocument
from forestay.ports.jobs.job_store import MAX_PAGE, Version, WriteResult


class OpenSearchDocumentStore:
    """Implements the port `DocumentStore`. The job store opens and closes the cluster that both share."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def put(self, documents: Sequence[tuple[Document, Version | None]]) -> Sequence[WriteResult]:
        lines = [
            (document.id, expected, to_json(document._asdict(), f"document {document.id!r}"))
            for document, expected in documents
        ]
        return await self._cluster.write("documents", lines) if lines else ()

    async def get(self, documents: Sequence[str]) -> Mapping[str, StoredDocument]:
        return {hit["_id"]: _stored(hit) for hit in await self._cluster.get("documents", documents)}

    async def find(self, kind: str, *, tenant: str | None = None) -> Sequence[StoredDocument]:
        fields = {"kind": kind} if tenant is None else {"kind": kind, "tenant": tenant}
        body: dict[str, Any] = {
            "query": {"bool": {"filter": [{"term": {name: value}} for name, value in fields.items()]}},
            "sort": [{"id": {"order": "asc"}}],
            "size": MAX_PAGE,
            "seq_no_primary_term": True,
            "track_total_hits": False,
        }
        found: list[StoredDocument] = []
        while True:
            page = (await self._cluster.search("documents", body))["hits"]["hits"]
            found += map(_stored, page)
            if len(page) < MAX_PAGE:
                return found
            body["search_after"] = page[-1]["sort"]

    async def remove(self, documents: Sequence[StoredDocument]) -> int:
        if not documents:
            return 0
        return await self._cluster.remove_at(
            "documents", [(stored.document.id, stored.version) for stored in documents]
        )

    async def kinds(self, prefix: str) -> Sequence[str]:
        query = {"prefix": {"kind": prefix}} if prefix else {"match_all": {}}
        return await self._cluster.values("documents", "kind", query)


def _stored(hit: Mapping[str, Any]) -> StoredDocument:
    source = hit["_source"]
    return StoredDocument(Document(source["id"], source["tenant"], source["kind"], source["body"]), version_of(hit))
