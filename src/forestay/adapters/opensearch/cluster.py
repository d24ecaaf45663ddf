"""One OpenSearch cluster as all stores use it: bulk writes, realtime gets, searches, refreshes.

Documents are only ever written whole, by `_bulk`: created under a given id, or over the version that was
read (`if_seq_no` and `if_primary_term`). There are no partial updates, scripts, retries or generated ids. Requests are
assembled as bytes and responses are parsed once, since this is where a server spends its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import orjson
import structlog

from forestay.adapters.opensearch.answers import BulkResult, Rejected, bulk_results
from forestay.adapters.opensearch.hosts import Access, Hosts
from forestay.adapters.opensearch.indexes import FIELDS, Layout, make_indexes
from forestay.ports.errors import Permanent, Transient
from forestay.ports.jobs.job_store import Unknown, Version, WriteResult

_log = structlog.get_logger(__name__)

MOST_LINES = 2_000
"""Lines of one request; a larger write is sent as several concurrent requests: one of 10,000 documents would delay all others."""

_LARGE_BODY = 1 << 20
VALUES_AT_ONCE = 1_000


class Cluster:
    """The indexes of one prefix on some hosts."""

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
        self.layout = Layout(prefix, replicas, shards)
        self.hosts = Hosts(hosts, timeout=timeout, access=access)
        self._copies = replicas + 1 if wait_for_active_shards == "all" else int(wait_for_active_shards)
        self._write_params = {
            "require_alias": "true",
            "wait_for_active_shards": str(wait_for_active_shards),
            # The server times out first: a write that we no longer wait for should not take place much later.
            "timeout": f"{max(1, int(timeout * 900))}ms",
        }

    async def open(self) -> None:
        await make_indexes(self.hosts, self.layout)

    async def close(self) -> None:
        await self.hosts.close()

    async def ask(self, path: str) -> Any:
        """Request information about the cluster itself."""
        return await self.hosts.read(path, method="GET", params={}, checking_setup=True)

    async def write(self, kind: str, lines: Sequence[tuple[str, Version | None, bytes]]) -> Sequence[WriteResult]:
        """Write documents (id, expected version, body); returns one result for each. Nothing is ever sent twice.

        `Permanent` if the store can never accept any of them; a single such document among others is `Unknown`, so that the results
        of the others are not lost with it; when it is retried alone it is refused for good.
        """
        if len(lines) <= MOST_LINES:
            results = await self._bulk(kind, lines)
        else:
            parts = [lines[start : start + MOST_LINES] for start in range(0, len(lines), MOST_LINES)]
            done = await asyncio.gather(*(self._bulk(kind, part) for part in parts))
            results = [result for part in done for result in part]
        rejected = [result for result in results if type(result) is Rejected]
        if not rejected:
            return results  # type: ignore[return-value]  # none of them is Rejected
        _log.error("documents rejected", index=self.layout.alias(kind), count=len(rejected), first=rejected[0].detail)
        if len(rejected) == len(results):
            raise Permanent(f"OpenSearch rejects the document: {rejected[0].detail}")
        return [Unknown(result.detail) if isinstance(result, Rejected) else result for result in results]

    async def _bulk(self, kind: str, lines: Sequence[tuple[str, Version | None, bytes]]) -> Sequence[BulkResult]:
        body: list[bytes] = []
        verbs: list[str] = []
        for identifier, expected, document in lines:
            name = orjson.dumps(identifier)
            if expected is None:
                verbs.append("create")
                body.append(b'{"create":{"_id":%b}}\n%b\n' % (name, document))
            else:
                verbs.append("index")
                body.append(
                    b'{"index":{"_id":%b,"if_seq_no":%d,"if_primary_term":%d}}\n%b\n'
                    % (name, expected.number, expected.term, document)
                )
        try:
            answer = await self._send(kind, body)
        except Transient as error:
            return [Unknown(str(error))] * len(lines)
        return bulk_results(answer, verbs, self._copies)

    async def overwrite(self, kind: str, identifier: str, document: bytes) -> None:
        """Write a document that has only one writer, over any existing one."""
        line = b'{"index":{"_id":%b}}\n%b\n' % (orjson.dumps(identifier), document)
        _sure(bulk_results(await self._send(kind, [line]), ["index"], self._copies))

    async def remove(self, kind: str, identifiers: Sequence[str]) -> None:
        """Remove documents that have only one writer; missing ones count as removed."""
        if identifiers:
            await self._delete(
                kind, [b'{"delete":{"_id":%b}}\n' % orjson.dumps(identifier) for identifier in identifiers], {200, 404}
            )

    async def remove_at(self, kind: str, versions: Sequence[tuple[str, Version]]) -> int:
        """Remove documents that are still at these versions; returns how many."""
        line = b'{"delete":{"_id":%b,"if_seq_no":%d,"if_primary_term":%d}}\n'
        lines = [line % (orjson.dumps(name), version.number, version.term) for name, version in versions]
        return (await self._delete(kind, lines, {200, 404, 409})).count(200)

    async def _delete(self, kind: str, lines: list[bytes], clear: set[int]) -> list[int]:
        """The status of each line; an unclear or missing one makes the whole result unsure."""
        items = (await self._send(kind, lines)).get("items", ())
        statuses = [result["delete"]["status"] for result in items]
        if len(statuses) != len(lines) or not clear.issuperset(statuses):
            raise Transient("OpenSearch did not remove everything; try again")
        return statuses

    async def remove_where(self, kind: str, query: Mapping[str, Any]) -> int:
        """Remove the documents that a search finds, except those written meanwhile; returns how many. Harmless to repeat."""
        params = {"conflicts": "proceed", "wait_for_active_shards": self._write_params["wait_for_active_shards"]}
        answer = await self.hosts.read(f"/{self.layout.alias(kind)}/_delete_by_query", {"query": query}, params=params)
        if answer["timed_out"] or answer["failures"]:
            raise Transient("OpenSearch did not remove everything; try again")
        return int(answer["deleted"])

    async def _send(self, kind: str, body: list[bytes]) -> Any:
        lines = b"".join(body)
        # The HTTP library warns about large byte strings, but accepts a file of the same bytes.
        payload: Any = BytesIO(lines) if len(lines) > _LARGE_BODY else lines
        return await self.hosts.write(f"/{self.layout.alias(kind)}/_bulk", payload, self._write_params)

    async def get(self, kind: str, identifiers: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """The existing documents, as hits with source and version, realtime."""
        if not identifiers:
            return ()
        answer = await self.hosts.read(f"/{self.layout.alias(kind)}/_mget", {"ids": list(identifiers)}, params={})
        docs = answer["docs"]
        for doc in docs:
            if "error" in doc:
                raise Transient(f"OpenSearch could not read {doc['_id']}: {doc['error'].get('type')}")
        return [doc for doc in docs if doc.get("found")]

    async def search(self, kind: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The complete response of a search; a response without some shards counts as an error."""
        params = {"allow_partial_search_results": "false"}
        answer: Mapping[str, Any] = await self.hosts.read(f"/{self.layout.alias(kind)}/_search", body, params=params)
        if answer["timed_out"] or answer["_shards"]["failed"]:
            raise Transient("OpenSearch searched only a part of the index")
        return answer

    async def values(self, kind: str, field: str, query: Mapping[str, Any]) -> Sequence[str]:
        """Every value that a field has in the documents that a query finds, in order; page by page, since an aggregation has a limit."""
        found: list[str] = []
        composite: dict[str, Any] = {"size": VALUES_AT_ONCE, "sources": [{"value": {"terms": {"field": field}}}]}
        while True:
            body = {"query": query, "size": 0, "track_total_hits": False, "aggs": {"values": {"composite": composite}}}
            page = (await self.search(kind, body))["aggregations"]["values"]
            found += [str(bucket["key"]["value"]) for bucket in page["buckets"]]
            if len(page["buckets"]) < VALUES_AT_ONCE:
                return found
            composite["after"] = page["after_key"]

    async def refresh(self, *kinds: str) -> None:
        """Make acknowledged writes visible to searches."""
        names = ",".join(self.layout.alias(kind) for kind in kinds or FIELDS)
        answer = await self.hosts.read(f"/{names}/_refresh", params={})
        if answer["_shards"]["failed"]:
            raise Transient("OpenSearch refreshed only a part of the index")


def to_json(document: object, what: str) -> bytes:
    """The bytes of a document; `Permanent` for values that JSON cannot represent, such as half a surrogate pair or a huge number."""
    try:
        return orjson.dumps(document)
    except TypeError as error:
        raise Permanent(f"{what} cannot be stored: {error}") from error


def version_of(hit: Mapping[str, Any]) -> Version:
    """The version of a document that was read."""
    return Version(hit["_seq_no"], hit["_primary_term"])


def _sure(results: Sequence[BulkResult]) -> None:
    for result in results:
        if isinstance(result, Rejected):
            raise Permanent(f"OpenSearch rejects the document: {result.detail}")
        if isinstance(result, Unknown):
            raise Transient(f"the result of the write to OpenSearch is unknown: {result.detail}")
