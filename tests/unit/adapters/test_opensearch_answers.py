"""What the lines of a bulk answer mean."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.adapters.opensearch_host import BadHost

from forestay.adapters.opensearch.answers import OUR_TYPES, Rejected, bulk_results
from forestay.adapters.opensearch.cluster import Cluster
from forestay.adapters.opensearch.indexes import FIELDS
from forestay.ports.errors import NotFound, Permanent, Transient
from forestay.ports.jobs.job_store import Conflicted, Unknown, Version, Written


def line(status: int = 200, *, total: int = 1, successful: int = 1, failed: int = 0, **more: Any) -> dict[str, Any]:
    shards = {"total": total, "successful": successful, "failed": failed}
    return {"index": {"status": status, "_shards": shards, "_seq_no": 7, "_primary_term": 2} | more}


def refusal(status: int, kind: str) -> dict[str, Any]:
    return {"index": {"status": status, "error": {"type": kind, "reason": "because"}}}


def one(fields: dict[str, Any], copies: int = 1) -> object:
    return bulk_results({"items": [fields]}, ["index"], copies)[0]


def test_an_acknowledged_line_has_its_version() -> None:
    assert one(line(200)) == Written(Version(7, 2))
    assert one(line(201)) == Written(Version(7, 2))


def test_a_copy_that_failed_makes_a_write_unsure() -> None:
    assert isinstance(one(line(total=2, successful=1, failed=1)), Unknown)


def test_fewer_copies_than_we_wait_for_make_a_write_unsure() -> None:
    assert isinstance(one(line(total=3, successful=1), copies=2), Unknown)
    assert isinstance(one(line(total=3, successful=2), copies=2), Written)


def test_a_conflict_is_told_apart() -> None:
    assert isinstance(one(refusal(409, "version_conflict_engine_exception")), Conflicted)


@pytest.mark.parametrize("status", [404, 408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_unknown(status: int) -> None:
    assert isinstance(one(refusal(status, "some_exception")), Unknown)


@pytest.mark.parametrize("kind", ["cluster_block_exception", "index_create_block_exception"])
def test_a_blocked_cluster_is_unknown_although_it_says_forbidden(kind: str) -> None:
    assert isinstance(one(refusal(403, kind)), Unknown)


@pytest.mark.finding("F-B1")
@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (400, "index_closed_exception", "closed"),
        (400, "illegal_argument_exception", "no write index is defined for alias [jobs]"),
        (401, "security_exception", "missing authentication credentials"),
        (403, "security_exception", "no permissions for [indices:data/write/bulk]"),
        (404, "index_not_found_exception", "no such index [jobs] and [require_alias] request flag is [true]"),
        (405, "method_not_allowed", ""),
    ],
)
async def test_a_cluster_that_changed_is_not_the_callers_mistake(status: int, kind: str, reason: str) -> None:
    error = {"type": kind, "reason": reason}
    assert isinstance(one({"index": {"status": status, "error": error}}), Unknown)
    async with BadHost(status, answer={"error": error | {"root_cause": [error]}, "status": status}) as host:
        cluster = Cluster([host.url])
        try:
            with pytest.raises(Transient, match=kind):
                await cluster.search("jobs", {})
            with pytest.raises((Permanent, NotFound), match=kind):
                await cluster.ask("/")  # the set-up is checked: it fails with a clear message
        finally:
            await cluster.close()


def test_a_document_of_the_wrong_shape_is_rejected() -> None:
    assert isinstance(one(refusal(400, "mapper_parsing_exception")), Rejected)


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, {"items": []}, {"items": [line(), line()]}, {"items": [{}]}, {"items": [{"create": {}}]}],
)
def test_an_answer_that_does_not_fit_says_nothing(answer: object) -> None:
    assert [type(result) for result in bulk_results(answer, ["index"], 1)] == [Unknown]


async def test_a_rejected_document_among_others_does_not_hide_their_results() -> None:
    items = [line(), refusal(400, "mapper_parsing_exception")]
    async with BadHost(answer={"items": items}) as host:
        cluster = Cluster([host.url])
        try:
            lines = [("a", Version(1, 1), b"{}"), ("b", Version(1, 1), b"{}")]
            assert [type(result) for result in await cluster.write("jobs", lines)] == [Written, Unknown]
            host.answer = {"items": items[1:]}
            with pytest.raises(Permanent, match="mapper_parsing_exception"):
                await cluster.write("jobs", lines[1:])
        finally:
            await cluster.close()


async def test_a_call_that_failed_is_unknown_for_every_line() -> None:
    async with BadHost(503) as host:
        cluster = Cluster([host.url])
        try:
            lines = [(name, None, b"{}") for name in "abc"]
            assert [type(result) for result in await cluster.write("jobs", lines)] == [Unknown] * 3
        finally:
            await cluster.close()
    assert len(host.requests) == 1


@pytest.mark.finding("F-B1")
@pytest.mark.parametrize(
    ("kind", "reason", "answer"),
    [
        ("mapper_parsing_exception", "failed to parse field [created] of type [ip] in document with id 'j'", Unknown),
        (
            "mapper_parsing_exception",
            "failed to parse field [state] of type [long] in document with id 'j'. Preview of field's value: 'available'",
            Unknown,
        ),
        (
            "document_parsing_exception",
            "failed to parse field [rank] of type [long] in document with id 'j'. Preview of field's value: '99999999999999999999'",
            Rejected,
        ),
        (
            "strict_dynamic_mapping_exception",
            "mapping set to strict, dynamic introduction of [team] is not allowed",
            Unknown,
        ),
        ("illegal_argument_exception", "mapper [state] cannot be changed from type [keyword] to [long]", Unknown),
        ("illegal_argument_exception", 'Document contains at least one immense term in field="owner"', Rejected),
    ],
)
def test_a_mapping_conflict_is_not_the_callers_mistake(kind: str, reason: str, answer: type[object]) -> None:
    assert isinstance(one({"index": {"status": 400, "error": {"type": kind, "reason": reason}}}), answer)


def test_the_types_are_those_that_we_map() -> None:
    assert {field["type"] for fields in FIELDS.values() for field in fields.values() if "type" in field} <= OUR_TYPES
