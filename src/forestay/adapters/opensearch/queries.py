"""Job queries as structured queries, and cursors. No query is assembled from text."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from forestay.adapters.opensearch.indexes import LABEL_FIELD, RANGES
from forestay.domain.jobs.hash_slots import SLOTS
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import (
    COUNT_FIELDS,
    MAX_PAGE,
    NUMBER_FIELDS,
    SORT_FIELDS,
    TEXT_FIELDS,
    JobQuery,
    tally_bounds,
)

MOST_VALUES = 10_000
VALUES_A_STEP = 100
"""The most values of a tally: multiplied by its steps fewer than the 65,535 buckets that OpenSearch allows."""


def label_pair(key: str, value: str) -> str:
    """A label as one word; the key is escaped, so that no two labels look the same."""
    return key.replace("\\", "\\\\").replace("=", "\\=") + "=" + value


def query_of(query: JobQuery) -> dict[str, Any]:
    """The filter for exactly the jobs of a query."""
    filters: list[dict[str, Any]] = []
    if query.tenant is not None:
        filters.append({"term": {"tenant": query.tenant}})
    if query.states:
        filters.append(_any("state", sorted(query.states)))
    for name, values in query.anyof.items():
        _known(name, TEXT_FIELDS)
        filters.append({"ids": {"values": list(values)}} if name == "id" else _any(name, values))
    bounds: dict[str, dict[str, int]] = {}
    for name, least in query.at_least.items():
        bounds.setdefault(_known(name, NUMBER_FIELDS), {})["gte"] = _whole(least)
    for name, most in query.at_most.items():
        bounds.setdefault(_known(name, NUMBER_FIELDS), {})["lte"] = _whole(most)
    filters += [{"range": {name: bound}} for name, bound in bounds.items()]
    filters += [{"term": {LABEL_FIELD: label_pair(key, value)}} for key, value in query.labels.items()]
    if query.held is not None:
        filters.append({"term": {"held": query.held}})
    if query.slots is not None and len(query.slots) < SLOTS:
        filters.append({"terms": {"slot": sorted(query.slots)}})
    return {"bool": {"filter": filters}} if filters else {"match_all": {}}


def page_of(query: JobQuery, sort: str, limit: int, cursor: str | None) -> dict[str, Any]:
    """The search for one page plus one job."""
    if not 1 <= limit <= MAX_PAGE:
        raise Permanent(f"the limit of a page is 1 to {MAX_PAGE} jobs, not {limit}")
    name = _known(sort.removeprefix("-"), SORT_FIELDS)
    order = "desc" if sort.startswith("-") else "asc"
    by: list[dict[str, Any]] = [{name: {"order": order, "missing": "_last"}}]
    if name != "id":
        by.append({"id": {"order": order}})
    after = None if cursor is None else _after(cursor, sort, len(by))
    meant = query_of(query)
    if after is not None and name in RANGES:
        # The cursor's position is a filter too: earlier jobs are then skipped instead of read.
        place = {"range": {name: {"gte" if order == "asc" else "lte": after[0]}}}
        meant = {"bool": {"filter": [meant, place]}}
    body: dict[str, Any] = {
        "query": meant,
        "sort": by,
        "size": limit + 1,
        "seq_no_primary_term": True,
        "track_total_hits": False,
    }
    if after is not None:
        body["search_after"] = after
    return body


def cursor_at(sort: str, values: list[Any]) -> str:
    """Where a page ended, for the next one."""
    return urlsafe_b64encode(orjson.dumps([sort, *values])).decode().rstrip("=")


def _after(cursor: str, sort: str, length: int) -> list[Any]:
    return cursor_place(cursor, sort, numbers=sort.removeprefix("-") in NUMBER_FIELDS, length=length)


def cursor_place(cursor: str, sort: str, *, numbers: bool, length: int = 2) -> list[Any]:
    """The position of a cursor; `Permanent` unless it belongs to this order."""
    try:
        place = orjson.loads(urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)))
    except (ValueError, BadBase64) as error:
        raise Permanent("invalid cursor") from error
    if not isinstance(place, list) or len(place) != length + 1 or place[0] != sort:
        raise Permanent("the cursor belongs to another search")
    values = place[1:]
    first_good = (isinstance(values[0], int) and numbers) or (isinstance(values[0], str | None) and not numbers)
    if not first_good or not isinstance(values[-1], str | int) or isinstance(values[0], bool):
        raise Permanent("invalid cursor")
    if numbers:
        _whole(values[0])
    return list(values)


def _whole(number: int) -> int:
    """A number that the store's 64 bits can hold."""
    if not -(2**63) <= number < 2**63:
        raise Permanent(f"{number} is beyond 64 bits")
    return number


def counting(query: JobQuery, by: str) -> dict[str, Any]:
    """The count of jobs for each value of a field."""
    _known(by, COUNT_FIELDS)
    return {
        "query": query_of(query),
        "size": 0,
        "track_total_hits": False,
        "aggs": {"by": {"terms": {"field": by, "size": MOST_VALUES}}},
    }


def counts_from(answer: Mapping[str, Any]) -> dict[str, int]:
    """The counts, the most jobs first."""
    return {
        str(bucket.get("key_as_string", bucket["key"])): bucket["doc_count"]
        for bucket in answer["aggregations"]["by"]["buckets"]
    }


def tallying(query: JobQuery, over: str, step: int, by: str) -> tuple[dict[str, Any], int]:
    """The search for a tally, and how many steps it has."""
    least, steps = tally_bounds(query, over, step, by)
    return tally_of(query_of(query), over, least, step, by), steps


def tally_of(meant: dict[str, Any], over: str, least: int, step: int, by: str) -> dict[str, Any]:
    """The count of each value in each step of a time; the first begins at the bound."""
    values = {"by": {"terms": {"field": by, "size": VALUES_A_STEP}}}
    steps = {"field": over, "interval": step, "offset": least % step, "min_doc_count": 1}
    return {
        "query": meant,
        "size": 0,
        "track_total_hits": False,
        "aggs": {"steps": {"histogram": steps, "aggs": values}},
    }


def tally_from(answer: Mapping[str, Any], least: int, step: int, steps: int) -> list[dict[str, int]]:
    """One mapping for each step."""
    result: list[dict[str, int]] = [{} for _ in range(steps)]
    for bucket in answer["aggregations"]["steps"]["buckets"]:
        values = {str(other_bucket["key"]): other_bucket["doc_count"] for other_bucket in bucket["by"]["buckets"]}
        result[(int(bucket["key"]) - least) // step] = values
    return result


def _any(name: str, values: Sequence[str]) -> dict[str, Any]:
    return {"term": {name: values[0]}} if len(values) == 1 else {"terms": {name: list(values)}}


def _known(name: str, fields: frozenset[str]) -> str:
    if name not in fields:
        raise Permanent(f"unknown field {name!r}; use one of {', '.join(sorted(fields))}")
    return name
