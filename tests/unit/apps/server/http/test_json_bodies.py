"""Bodies whose shape is bounded before they are parsed, in slices when they are large."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.running import RunningServer

from forestay.apps.server.http import json_bodies
from forestay.apps.server.http.caller_limits import CallerLimits
from forestay.apps.server.http.json_bodies import JsonShape, parsed_json
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.jobs.schemas import JobIn, SubmitIn

JSON = {"Content-Type": "application/json"}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('ab"\\[]{},:\n\u00e9')),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(st.sampled_from('a"\\[,')), inner, max_size=5),
    max_leaves=40,
)


def _depth(value: Any) -> int:
    if isinstance(value, (list, dict)):
        return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)
    return 0


def _marks(value: Any) -> int:
    """Opening brackets and commas outside of strings, counted on the values."""
    if isinstance(value, (list, dict)):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(len(value) - 1, 0) + sum(map(_marks, inner))
    return 0


def _request(body: bytes) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    app = SimpleNamespace(state=SimpleNamespace(context=SimpleNamespace(callers=CallerLimits(10, 1 << 30))))
    return Request({"type": "http", "app": app, "headers": []}, receive)


@pytest.mark.finding("F-B4")
@given(VALUES, st.integers(1, 20), st.booleans())
def test_the_shape_of_a_text_is_that_of_its_values(value: Any, piece: int, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    shape = JsonShape()
    for start in range(0, len(text), piece):
        shape.read(text[start : start + piece])
    assert shape.elements == _marks(value)
    assert shape._depth == 0


@pytest.mark.finding("F-B4")
@pytest.mark.parametrize("kind", ["list", "object", "both"])
@pytest.mark.parametrize("piece", [1, 7, 16_384])
def test_the_depth_is_bounded(kind: str, piece: int) -> None:
    opening, closing = {"list": (b"[", b"]"), "object": (b'{"a":', b"}"), "both": (b'[{"a":', b"}]")}[kind]
    levels = json_bodies.MAX_DEPTH // (2 if kind == "both" else 1)

    def read(text: bytes) -> None:
        shape = JsonShape()
        for start in range(0, len(text), piece):
            shape.read(text[start : start + piece])

    read(opening * levels + b"1" + closing * levels)
    with pytest.raises(HttpProblem, match="deeper"):
        read(opening * (levels + 1) + b"1" + closing * (levels + 1))


@pytest.mark.finding("F-B4")
@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), st.sampled_from([None, 1]))
async def test_a_large_body_reads_as_a_small_one(value: dict[str, Any], indent: int | None) -> None:
    padded = value | {"padding": ["x"] * (json_bodies.SMALL_ELEMENTS + 1)}
    assert await parsed_json(_request(json.dumps(padded, indent=indent).encode())) == padded


@pytest.mark.finding("F-B4")
@pytest.mark.parametrize(
    "end", [b"", b"}]", b"]", b"]}]", b"]} x", b",]}", b",}", b'],"a"}', b'],"a":}', b"],}", b"],1:2}", b'],"a":1']
)
async def test_a_large_body_that_is_no_json_is_refused(end: bytes) -> None:
    start = b'{"a": [' + b",".join([b"1"] * 5000)
    with pytest.raises(json.JSONDecodeError):
        json.loads(start + end)
    with pytest.raises(json.JSONDecodeError):
        await parsed_json(_request(start + end))


@pytest.mark.finding("F-B4")
async def test_others_have_their_turn_while_a_large_body_is_parsed() -> None:
    job = {"parameters": {"a": "x" * 50}, "labels": {"a": "b"}, "specification": {"command": ["true"]}}
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    body = await parsed_json(_request(json.dumps({"jobs": [job] * 5000}).encode()), SubmitIn)
    task.cancel()
    assert turns > 10
    assert len(body["jobs"]) == 5000
    assert all(isinstance(made, JobIn) for made in body["jobs"])
    assert SubmitIn.model_validate(body).jobs[4999].labels == {"a": "b"}


@pytest.mark.finding("F-B4")
async def test_each_wrong_item_of_a_large_body_is_named() -> None:
    jobs: list[dict[str, Any]] = [{}] * 5000
    jobs[7], jobs[4321] = {"priority": "x"}, {"unknown": 1}
    with pytest.raises(HttpProblem) as raised:
        await parsed_json(_request(json.dumps({"jobs": jobs}).encode()), SubmitIn)
    assert [error["at"] for error in raised.value.errors] == ["body.jobs.7.priority", "body.jobs.4321.unknown"]


@pytest.mark.finding("F-B4")
async def test_a_body_of_empty_lists_is_refused_unparsed(
    local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of them held every other caller up for seconds."""
    parsed = 0

    def loads(*_args: Any) -> None:
        nonlocal parsed
        parsed += 1

    token = local.domain.token("submitter", tenant=tenant)
    lists = ",".join(["[]"] * 330_000)
    body = '{"jobs": [{"specification": {"command": ["x"]}, "parameters": {"a": [' + lists + "]}}]}"
    monkeypatch.setattr(json_bodies, "_in_slices", loads)
    async with http_client(local.url, token) as client:
        answer = await client.post("/v1/jobs", content=body, headers=JSON)
        assert answer.status_code == 413, answer.text
        assert "values" in answer.json()["detail"]
        tes = await client.post("/ga4gh/tes/v1/tasks", content='{"tags": {"a": [' + lists + "]}}", headers=JSON)
        assert tes.status_code == 413, tes.text
    assert not parsed


@pytest.mark.finding("F-B4")
async def test_thousands_of_jobs_are_still_accepted(local: RunningServer, tenant: str) -> None:
    ada = local.person("submitter", tenant=tenant)
    jobs = [{"index": place, "parameters": {"a": "x" * 100}} for place in range(3000)]
    answer = await ada.post("/v1/jobs", json={"specification": {"command": ["true"]}, "jobs": jobs}, timeout=180)
    assert answer.status_code == 201, answer.text[:300]
    assert len(answer.json()["jobs"]) == 3000
