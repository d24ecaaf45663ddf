"""The job store in OpenSearch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from forestay.adapters.opensearch.cluster import Cluster, to_json, version_of
from forestay.adapters.opensearch.create_only import GoneAgain, create
from forestay.adapters.opensearch.hosts import Access
from forestay.adapters.opensearch.indexes import LABEL_FIELD
from forestay.adapters.opensearch.queries import (
    counting,
    counts_from,
    cursor_at,
    label_pair,
    page_of,
    tally_from,
    tallying,
)
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.specification import Specification
from forestay.formats.jobs.job_json import job_from_json, job_to_json, specification_from_json, specification_to_json
from forestay.formats.text.readable import Readable
from forestay.ports.errors import Unreadable
from forestay.ports.jobs.job_store import (
    MAX_PAGE,
    DocumentChange,
    JobPage,
    JobQuery,
    Record,
    SpecificationUse,
    Stored,
    WriteResult,
    Written,
)

_log = structlog.get_logger(__name__)
USED = "used"
"""When a specification was last used; added to the stored document by this adapter and removed when it is read."""


class OpenSearchJobStore:
    """Implements the port `JobStore`."""

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        prefix: str = "forestay",
        replicas: int = 0,
        shards: int = 1,
        wait_for_active_shards: str | int = 1,
        timeout: float = 5.0,
        access: Access | None = None,
    ) -> None:
        self.cluster = Cluster(
            hosts,
            prefix=prefix,
            replicas=replicas,
            shards=shards,
            wait_for_active_shards=wait_for_active_shards,
            timeout=timeout,
            access=access,
        )
        self.readable = Readable(lambda job, why: _log.error("a job's document cannot be read", job=job, why=why))

    async def open(self) -> None:
        await self.cluster.open()

    async def close(self) -> None:
        await self.cluster.close()

    async def write(self, changes: Sequence[DocumentChange]) -> Sequence[WriteResult]:
        if not changes:
            return ()
        lines = [(change.document.id, change.expected, _to_bytes(change.document)) for change in changes]
        return await self.cluster.write("jobs", lines)

    async def get(self, jobs: Sequence[str]) -> Mapping[str, Stored]:
        hits = ((hit["_id"], hit) for hit in await self.cluster.get("jobs", jobs))
        read, spoilt = self.readable.split(hits, _stored)
        if spoilt:
            raise Unreadable(spoilt, "job documents")
        return {stored.document.id: stored for stored in read}

    async def search(
        self, query: JobQuery, *, sort: str = "created", limit: int = 100, cursor: str | None = None
    ) -> JobPage:
        answer = await self.cluster.search("jobs", page_of(query, sort, limit, cursor))
        hits = answer["hits"]["hits"]
        following = cursor_at(sort, hits[limit - 1]["sort"]) if len(hits) > limit else None
        return JobPage(self.readable.each(((hit["_id"], hit) for hit in hits[:limit]), _stored), following)

    async def count(self, query: JobQuery, *, by: str) -> Mapping[str, int]:
        return counts_from(await self.cluster.search("jobs", counting(query, by)))

    async def tally(self, query: JobQuery, *, over: str, step: int, by: str) -> Sequence[Mapping[str, int]]:
        body, steps = tallying(query, over, step, by)
        return tally_from(await self.cluster.search("jobs", body), query.at_least[over], step, steps)

    async def remove(self, jobs: Sequence[Stored]) -> int:
        if not jobs:
            return 0
        await self.cluster.remove_where("records", {"terms": {"job": [job.document.id for job in jobs]}})
        return await self.cluster.remove_at("jobs", [(job.document.id, job.version) for job in jobs])

    async def put_specifications(self, specifications: Sequence[Specification], *, used: int = 0) -> None:
        lines = [
            (
                specification.id,
                None,
                to_json(specification_to_json(specification) | {USED: used}, f"specification {specification.id!r}"),
            )
            for specification in specifications
        ]

        def noted(source: dict[str, Any]) -> Mapping[str, Any]:
            # An existing one is written once more in any case, so its use is noted each time.
            return source | {USED: max(used, source.get(USED) or 0)}

        try:
            await create(self.cluster, "specifications", lines, noted)
        except GoneAgain:
            # One was removed, as unused, between the two requests: now it can be created.
            await create(self.cluster, "specifications", lines, noted)

    async def get_specifications(self, ids: Sequence[str]) -> Mapping[str, Specification]:
        hits = await self.cluster.get("specifications", ids)
        for hit in hits:
            hit["_source"].pop(USED, None)
        return {hit["_id"]: specification_from_json(hit["_source"]) for hit in hits}

    async def unused_specifications(self, before: int, *, limit: int = 500) -> Sequence[SpecificationUse]:
        old = [{"range": {USED: {"lt": before}}}, {"bool": {"must_not": {"exists": {"field": USED}}}}]
        body = {
            "query": {"bool": {"should": old, "minimum_should_match": 1}},
            "sort": [{USED: {"order": "asc", "missing": "_first"}}, {"id": {"order": "asc"}}],
            "size": min(limit, MAX_PAGE),
            "seq_no_primary_term": True,
            "_source": [USED],
            "track_total_hits": False,
        }
        hits = (await self.cluster.search("specifications", body))["hits"]["hits"]
        return [SpecificationUse(hit["_id"], hit["_source"].get(USED) or 0, version_of(hit)) for hit in hits]

    async def note_use(self, uses: Sequence[SpecificationUse], used: int) -> int:
        hits = {hit["_id"]: hit for hit in await self.cluster.get("specifications", [use.id for use in uses])}
        lines = [
            (use.id, use.version, to_json(hits[use.id]["_source"] | {USED: used}, f"specification {use.id!r}"))
            for use in uses
            if use.id in hits
        ]
        results = await self.cluster.write("specifications", lines) if lines else ()
        return sum(isinstance(result, Written) for result in results)

    async def remove_specifications(self, uses: Sequence[SpecificationUse]) -> int:
        if not uses:
            return 0
        return await self.cluster.remove_at("specifications", [(use.id, use.version) for use in uses])

    async def drop_records(
        self, before: int, *, kinds: Sequence[str] = (), jobs: Sequence[str] = (), ids: Sequence[str] = ()
    ) -> int:
        either = [{"terms": {"kind": list(kinds)}}, {"terms": {"job": list(jobs)}}, {"ids": {"values": list(ids)}}]
        old = {"bool": {"filter": {"range": {"at": {"lt": before}}}, "should": either, "minimum_should_match": 1}}
        return await self.cluster.remove_where("records", old)

    async def add_records(self, records: Sequence[Record]) -> Sequence[bool]:
        lines = [(record.id, None, to_json(record._asdict(), f"record {record.id!r}")) for record in records]
        return await create(self.cluster, "records", lines)

    async def get_record(self, record: str) -> Record | None:
        hits = await self.cluster.get("records", [record])
        return _record(hits[0]["_source"]) if hits else None

    async def find_records(
        self,
        *,
        kind: str | None = None,
        job: str | None = None,
        tenant: str | None = None,
        since: int | None = None,
        after: tuple[int, str] | None = None,
        newest_first: bool = False,
        limit: int = 1000,
    ) -> Sequence[Record]:
        wanted = {"kind": kind, "job": job, "tenant": tenant}
        filters: list[dict[str, Any]] = [{"term": {name: value}} for name, value in wanted.items() if value is not None]
        if since is not None:
            filters.append({"range": {"at": {"gte": since}}})
        body: dict[str, Any] = {
            "query": {"bool": {"filter": filters}},
            "sort": [{"at": {"order": "desc" if newest_first else "asc"}}, {"id": {"order": "asc"}}],
            "size": min(limit, MAX_PAGE),
            "track_total_hits": False,
        }
        if after is not None:
            body["search_after"] = list(after)
        answer = await self.cluster.search("records", body)
        return [_record(hit["_source"]) for hit in answer["hits"]["hits"]]

    async def refresh(self, *, only_jobs: bool = False) -> None:
        await self.cluster.refresh(*(("jobs",) if only_jobs else ()))


def _to_bytes(document: JobDocument) -> bytes:
    stored = job_to_json(document)
    if document.labels:
        stored[LABEL_FIELD] = [label_pair(key, value) for key, value in document.labels.items()]
    return to_json(stored, f"job {document.id!r}")


def _stored(hit: Mapping[str, Any]) -> Stored:
    source = hit["_source"]
    source.pop(LABEL_FIELD, None)
    return Stored(job_from_json(source), version_of(hit))


def _record(source: Mapping[str, Any]) -> Record:
    return Record(source["id"], source["tenant"], source["kind"], source["job"], source["at"], source["body"])
