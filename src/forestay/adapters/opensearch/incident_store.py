"""Incidents, in the same cluster as the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import structlog

from forestay.adapters.opensearch.cluster import Cluster, to_json, version_of
from forestay.adapters.opensearch.create_only import create
from forestay.adapters.opensearch.queries import cursor_at, cursor_place, tally_from, tally_of
from forestay.domain.exceptions.incidents.inbox import InboxTally, WaitCondition, asks_approval
from forestay.domain.exceptions.incidents.incident import (
    MAX_DOCUMENT,
    Decision,
    Incident,
    IncidentState,
    IncidentStatus,
    StepRecord,
    decision_id,
)
from forestay.formats.rules.incident_json import from_document, to_document
from forestay.formats.text.readable import Readable
from forestay.ports.errors import Permanent, Unreadable
from forestay.ports.exceptions.incident_store import (
    COUNT_FIELDS,
    MAX_FOUND,
    MAX_PILES,
    SORT_FIELDS,
    IncidentPage,
    IncidentQuery,
    StoredIncidentStatus,
    tally_bounds,
)
from forestay.ports.jobs.job_store import MAX_PAGE, Version, WriteResult

_log = structlog.get_logger(__name__)
_Paper = TypeVar("_Paper", Incident, Decision, StepRecord)
_PILED = ("state", "second", "group", "fingerprint", "cause", "owner")


class OpenSearchIncidentStore:
    """Implements the port `IncidentStore`. The job store opens and closes the cluster that both share."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.readable = Readable(lambda name, why: _log.error("a document cannot be read", document=name, why=why))

    async def add_incidents(self, incidents: Sequence[tuple[Incident, IncidentStatus]]) -> Sequence[bool]:
        places = {status.id: _bytes(status, status.id) for _, status in reversed(incidents)}
        added = await self._add([(incident.id, incident.id, incident) for incident, _ in incidents])
        await create(self._cluster, "incident_status", [(name, None, body) for name, body in places.items()])
        return added

    async def get_incidents(self, ids: Sequence[str]) -> Mapping[str, Incident]:
        return {incident.id: incident for incident in await self._get(Incident, ids)}

    async def get_statuses(self, ids: Sequence[str]) -> Mapping[str, StoredIncidentStatus]:
        hits = ((hit["_id"], hit) for hit in await self._cluster.get("incident_status", ids))
        read, spoilt = self.readable.split(hits, _stored)
        if spoilt:
            raise Unreadable(spoilt, "incident status")
        return {stored.status.id: stored for stored in read}

    async def put_statuses(self, statuses: Sequence[tuple[IncidentStatus, Version]]) -> Sequence[WriteResult]:
        lines = [(status.id, expected, _bytes(status, status.id)) for status, expected in statuses]
        return await self._cluster.write("incident_status", lines) if lines else ()

    async def find(
        self, query: IncidentQuery, *, sort: str = "-at", limit: int = 100, cursor: str | None = None
    ) -> IncidentPage:
        field, order = sort.removeprefix("-"), "desc" if sort.startswith("-") else "asc"
        if field not in SORT_FIELDS:
            raise Permanent(f"incidents cannot be sorted by {field!r}")
        if not 1 <= limit <= MAX_FOUND:
            raise Permanent(f"the limit of a page is 1 to {MAX_FOUND} incidents, not {limit}")
        body: dict[str, Any] = {
            "query": _query(query),
            "sort": [{field: {"order": order, "missing": "_last"}}, {"id": {"order": order}}],
            "size": limit + 1,
            "seq_no_primary_term": True,
            "track_total_hits": False,
        }
        if cursor is not None:
            body["search_after"] = cursor_place(cursor, sort, numbers=True)
        hits = (await self._cluster.search("incident_status", body))["hits"]["hits"]
        more = cursor_at(sort, hits[limit - 1]["sort"]) if len(hits) > limit else None
        return IncidentPage(self.readable.each(((hit["_id"], hit) for hit in hits[:limit]), _stored), more)

    async def refresh(self) -> None:
        await self._cluster.refresh("incident_status", "papers")

    async def count(self, query: IncidentQuery, *, by: str) -> Mapping[str, int]:
        if by not in COUNT_FIELDS:
            raise Permanent(f"incidents cannot be counted by {by!r}")
        order = [{"_count": "desc"}, {"_key": "asc"}]
        # A document of an earlier release does not have every field.
        terms = {"by": {"terms": {"field": by, "size": MAX_FOUND, "order": order, "missing": ""}}}
        body = {"query": _query(query), "size": 0, "track_total_hits": False, "aggs": terms}
        answer = await self._cluster.search("incident_status", body)
        return {str(bucket["key"]): bucket["doc_count"] for bucket in answer["aggregations"]["by"]["buckets"]}

    async def inbox_tallies(self, query: IncidentQuery) -> Sequence[InboxTally]:
        kept = [{name: {"terms": {"field": name, "missing_bucket": True}}} for name in _PILED]
        first = {"size": 1, "sort": [{"at": "asc"}, {"id": "asc"}], "_source": ["id", "at"]}
        aggs = {
            "cost": {"sum": {"field": "core_seconds"}},
            "oldest": {"top_hits": first},
            "newest": {"max": {"field": "at"}},
            "hosts": {"terms": {"field": "host", "size": 2, "missing": ""}},
        }
        tallies: list[InboxTally] = []
        after: dict[str, Any] = {}
        while len(tallies) < MAX_PILES:
            composite = {"size": MAX_FOUND, "sources": kept} | after
            body = {"query": _query(query), "size": 0, "track_total_hits": False}
            body["aggs"] = {"piles": {"composite": composite, "aggs": aggs}}
            answer = (await self._cluster.search("incident_status", body))["aggregations"]["piles"]
            tallies += [_pile(bucket) for bucket in answer["buckets"]]
            if len(answer["buckets"]) < MAX_FOUND:
                break
            after = {"after": answer["after_key"]}
        return tallies

    async def tally(self, query: IncidentQuery, *, step: int, by: str) -> Sequence[Mapping[str, int]]:
        since, steps = tally_bounds(query, step, by)
        body = tally_of(_query(query), "at", since, step, by)
        return tally_from(await self._cluster.search("incident_status", body), since, step, steps)

    async def add_decisions(self, decisions: Sequence[Decision]) -> Sequence[bool]:
        return await self._add([(decision.id, decision.incident, decision) for decision in decisions])

    async def get_decision(self, incident: str, n: int) -> Decision | None:
        decisions = await self._get(Decision, [decision_id(incident, n)])
        return decisions[0] if decisions else None

    async def get_decisions(self, names: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], Decision]:
        decisions = await self._get(Decision, [decision_id(*name) for name in names])
        return {(decision.incident, decision.n): decision for decision in decisions}

    async def decisions_of(self, incidents: Sequence[str]) -> Sequence[Decision]:
        return self._read(Decision, await self._papers(Decision, incidents))[0]

    async def decisions(self, incident: str) -> Sequence[Decision]:
        return sorted(await self._of(Decision, incident), key=lambda decision: decision.n)

    async def add_steps(self, steps: Sequence[StepRecord]) -> Sequence[bool]:
        return await self._add([(step.id, step.incident, step) for step in steps])

    async def get_steps(self, ids: Sequence[str]) -> Mapping[str, StepRecord]:
        return {record.id: record for record in await self._get(StepRecord, ids)}

    async def steps(self, incident: str) -> Sequence[StepRecord]:
        return sorted(await self._of(StepRecord, incident), key=lambda record: (record.n, record.step, record.mark))

    async def remove(self, statuses: Sequence[StoredIncidentStatus]) -> int:
        if not statuses:
            return 0
        # The status goes last: as long as it is there, a removal that broke off is found and repeated.
        names = [stored.status.id for stored in statuses]
        await self._cluster.remove_where("papers", {"terms": {"incident": names}})
        return await self._cluster.remove_at(
            "incident_status", [(stored.status.id, stored.version) for stored in statuses]
        )

    async def _add(self, wanted: Sequence[tuple[str, str, Incident | Decision | StepRecord]]) -> Sequence[bool]:
        lines: list[tuple[str, None, bytes]] = []
        for name, incident, document in wanted:
            kind = type(document)
            around = {"incident": incident, "kind": kind.__name__, "body": to_document(document)}
            lines.append((_key(kind, name), None, _bounded(to_json(around, name), name)))
        return await create(self._cluster, "papers", lines)

    async def _get(self, kind: type[_Paper], ids: Sequence[str]) -> list[_Paper]:
        hits = await self._cluster.get("papers", [_key(kind, identifier) for identifier in ids])
        read, spoilt = self._read(kind, hits)
        if spoilt:
            raise Unreadable(spoilt, f"documents of the kind {kind.__name__}")
        return read

    async def _of(self, kind: type[_Paper], incident: str) -> list[_Paper]:
        return self._read(kind, await self._papers(kind, [incident]))[0]

    async def _papers(self, kind: type[object], incidents: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """All documents of a kind of some incidents: a full page is searched again in halves, since it may not be all."""
        filters = [{"terms": {"incident": list(incidents)}}, {"term": {"kind": kind.__name__}}]
        body = {"query": {"bool": {"filter": filters}}, "size": MAX_PAGE, "track_total_hits": False}
        hits: Sequence[Mapping[str, Any]] = (await self._cluster.search("papers", body))["hits"]["hits"]
        if len(hits) < MAX_PAGE:
            return hits
        if len(incidents) == 1:
            raise Permanent(f"incident {incidents[0]} has {MAX_PAGE} or more documents of the kind {kind.__name__}")
        middle = len(incidents) // 2
        return [*await self._papers(kind, incidents[:middle]), *await self._papers(kind, incidents[middle:])]

    def _read(self, kind: type[_Paper], hits: Sequence[Mapping[str, Any]]) -> tuple[list[_Paper], list[str]]:
        """The readable documents, and the names, as callers give them, of the unreadable ones."""
        named = ((hit["_id"].removeprefix(f"{kind.__name__}:"), hit) for hit in hits)
        return self.readable.split(named, lambda hit: from_document(kind, hit["_source"]["body"]))


def _key(kind: type[object], name: str) -> str:
    """The key of a document: incidents, decisions and steps share an index, and their ids could be equal."""
    return f"{kind.__name__}:{name}"


def _bytes(status: IncidentStatus, what: str) -> bytes:
    return _bounded(to_json(to_document(status) | {"second": asks_approval(status)}, what), what)


def _pile(bucket: Mapping[str, Any]) -> InboxTally:
    key, first = bucket["key"], bucket["oldest"]["hits"]["hits"][0]["_source"]
    return InboxTally(
        IncidentState(key["state"]),
        bool(key["second"]),
        key["group"] or "",
        key["fingerprint"] or "",
        key["cause"] or "",
        key["owner"] or "",
        bucket["doc_count"],
        round(bucket["cost"]["value"]),
        first["id"],
        first["at"],
        round(bucket["newest"]["value"]),
        frozenset(str(host["key"]) for host in bucket["hosts"]["buckets"]),
    )


def _bounded(body: bytes, what: str) -> bytes:
    if len(body) > MAX_DOCUMENT:
        raise Permanent(f"{what[:80]!r} has {len(body)} bytes as JSON; the limit is {MAX_DOCUMENT}")
    return body


def _stored(hit: Mapping[str, Any]) -> StoredIncidentStatus:
    return StoredIncidentStatus(from_document(IncidentStatus, hit["_source"]), version_of(hit))


def _query(query: IncidentQuery) -> dict[str, Any]:
    filters: list[dict[str, Any]] = [{"term": {name: value}} for name, value in query.texts().items()]
    if query.states:
        filters.append({"terms": {"state": sorted(state.value for state in query.states)}})
    if query.waits:
        filters.append({"bool": {"should": [_waits(condition) for condition in query.wait_conditions()]}})
    if query.jobs:
        filters.append({"terms": {"job": sorted(query.jobs)}})
    if query.fingerprints:
        filters.append({"terms": {"fingerprint": sorted(query.fingerprints)}})
    happened = {name: bound for name, bound in (("gte", query.since), ("lt", query.until)) if bound is not None}
    if happened:
        filters.append({"range": {"at": happened}})
    if query.changed is not None:
        filters.append({"range": {"changed": {"gte": query.changed}}})
    if query.due is not None:
        filters.append({"range": {"due": {"lte": query.due}}})
    if query.not_fingerprints:
        filters.append(_but({"terms": {"fingerprint": sorted(query.not_fingerprints)}}))
    return {"bool": {"filter": filters}} if filters else {"match_all": {}}


def _waits(condition: WaitCondition) -> dict[str, Any]:
    filters: list[dict[str, Any]] = [{"terms": {"state": sorted(state.value for state in condition.states)}}]
    if condition.approval is not None:
        # A document of an earlier release has neither.
        asked = {"term": {"second": True}}
        filters.append(asked if condition.approval else _but(asked))
    if condition.storm is not None:
        alone = {"term": {"group": ""}}
        filters.append(_but(alone) if condition.storm else alone)
    return {"bool": {"filter": filters}}


def _but(unwanted: dict[str, Any]) -> dict[str, Any]:
    return {"bool": {"must_not": [unwanted]}}
