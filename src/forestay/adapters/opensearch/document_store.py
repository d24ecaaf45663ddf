"""Slips, in the same cluster as the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forestay.adapters.opensearch.cluster import Cluster, to_json, version_of
from forestay.ports.documents import Document, StoredDocument
from forestay.ports.jobs.job_store import MAX_PAGE, Version, WriteResult


class OpenSearchDocumentStore:
    """Fills the port `DocumentStore`. The job store opens and closes the cluster that both share."""

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

    async def find(self, kind: str) -> Sequence[StoredDocument]:
        body = {
            "query": {"bool": {"filter": [{"term": {"kind": kind}}]}},
            "sort": [{"id": {"order": "asc"}}],
            "size": MAX_PAGE,
            "seq_no_primary_term": True,
            "track_total_hits": False,
        }
        answer = await self._cluster.search("documents", body)
        return [_stored(hit) for hit in answer["hits"]["hits"]]


def _stored(hit: Mapping[str, Any]) -> StoredDocument:
    source = hit["_source"]
    return StoredDocument(Document(source["id"], source["tenant"], source["kind"], source["body"]), version_of(hit))
