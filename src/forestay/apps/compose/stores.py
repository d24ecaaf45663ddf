"""The stores of a domain, by their URL."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from forestay.ports.documents import DocumentStore
from forestay.ports.errors import Permanent
from forestay.ports.exceptions.audit import AuditStore
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.inspections import StoreInspection
from forestay.ports.jobs.job_store import JobStore
from forestay.ports.pilots.pilot_store import PilotStore


class Stores(NamedTuple):
    """The stores of one domain; opening and closing the job store does so for all."""

    jobs: JobStore
    pilots: PilotStore
    documents: DocumentStore
    incidents: IncidentStore
    audit: AuditStore

    def unreadable(self) -> int:
        """How many documents these stores could not read since they were opened."""
        return sum(store.readable.spoilt for store in self if hasattr(store, "readable"))


def open_stores(url: str) -> Stores:
    """The stores at a URL, not yet connected. Each kind takes a second to import, so a process imports only its own."""
    scheme = url.split(":", 1)[0].split("+")[0]
    if scheme in ("sqlite", "postgresql"):
        from forestay.adapters.sql.audit import SqlAuditStore
        from forestay.adapters.sql.document_store import SqlDocumentStore
        from forestay.adapters.sql.incident_store import SqlIncidentStore
        from forestay.adapters.sql.job_store import SqlJobStore
        from forestay.adapters.sql.pilot_store import SqlPilotStore

        sql = SqlJobStore(url)
        base = sql.database
        return Stores(sql, SqlPilotStore(base), SqlDocumentStore(base), SqlIncidentStore(base), SqlAuditStore(base))
    if scheme in ("opensearch", "opensearch+https", "opensearch+http"):
        from forestay.adapters.opensearch.audit import OpenSearchAuditStore
        from forestay.adapters.opensearch.document_store import OpenSearchDocumentStore
        from forestay.adapters.opensearch.hosts import Access
        from forestay.adapters.opensearch.incident_store import OpenSearchIncidentStore
        from forestay.adapters.opensearch.job_store import OpenSearchJobStore
        from forestay.adapters.opensearch.pilot_store import OpenSearchPilotStore

        parts = urlsplit(url)
        options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        transport = "https" if url.startswith("opensearch+https") else "http"
        replicas = int(options.get("replicas", "0"))
        access = Access(
            user=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            ca_certs=options.get("ca"),
            client_cert=options.get("certificate"),
            client_key=options.get("key"),
        )
        search = OpenSearchJobStore(
            [f"{transport}://{host}" for host in parts.netloc.rpartition("@")[2].split(",")],
            prefix=parts.path.strip("/") or "forestay",
            replicas=replicas,
            shards=int(options.get("shards", "1")),
            wait_for_active_shards=options.get("wait_for_active_shards", "2" if replicas else "1"),
            timeout=float(options.get("timeout", "5")),
            access=access,
        )
        cluster = search.cluster
        return Stores(
            search,
            OpenSearchPilotStore(cluster),
            OpenSearchDocumentStore(cluster),
            OpenSearchIncidentStore(cluster),
            OpenSearchAuditStore(cluster),
        )
    raise Permanent(
        f"store {scheme}:… is not supported; use sqlite:///FILE, postgresql://… or opensearch://HOST:PORT/PREFIX"
    )


async def inspect_store(url: str) -> StoreInspection:
    """Inspect the store without changing it; `Transient` or `Permanent` if that is not possible."""
    store = open_stores(url).jobs
    try:
        if url.startswith("opensearch"):
            from forestay.adapters.opensearch.inspection import inspect_cluster
            from forestay.adapters.opensearch.job_store import OpenSearchJobStore

            assert isinstance(store, OpenSearchJobStore)  # noqa: S101 - the URL says so
            return await inspect_cluster(store.cluster)
        from forestay.adapters.sql.inspection import inspect_database
        from forestay.adapters.sql.job_store import SqlJobStore

        assert isinstance(store, SqlJobStore)  # noqa: S101 - the URL says so
        return await inspect_database(store.database)
    finally:
        await store.close()
