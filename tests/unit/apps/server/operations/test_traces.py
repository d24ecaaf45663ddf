"""Traces of jobs, as a receiver of OTLP gets them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.apps.server.asks import submit, submit_one
from tests.unit.apps.server.otlp_receiver import OtlpReceiver, SpanSeen, otlp_receiver
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot
from tests.unit.apps.server.store_room import store_room

from forestay.services.shared.store_errors import unwatched

TRACE, ABOVE = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{ABOVE}-01"


@pytest.fixture
async def receiver() -> AsyncIterator[OtlpReceiver]:
    async with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture
async def traced(
    receiver: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunningServer]:
    monkeypatch.setenv("OTLP_TOKEN", "t0p-s3cret")
    more = {"otlp": receiver.url, "otlp_secret": "env:OTLP_TOKEN", "otlp_share": 0.0}
    async with store_room("sqlite", tmp_path) as url, Domain(url, tmp_path, more).server() as running:
        yield running


async def spans(server: RunningServer, receiver: OtlpReceiver, trace: str = TRACE) -> list[SpanSeen]:
    traces = server.services.components.traces
    assert traces is not None
    await asyncio.to_thread(traces.flush)
    return receiver.of(trace)


async def test_a_job_is_followed_from_its_submission_through_a_failure_to_its_end(
    traced: RunningServer, receiver: OtlpReceiver, tenant: str
) -> None:
    ada = traced.person("submitter", tenant=tenant)
    ada.headers["traceparent"] = TRACEPARENT
    job = await submit_one(ada, {"name": "align"}, max_attempts=2, retry_wait=0)
    pilot = await ScriptedPilot.register(traced, tenant)
    first = await pilot.claim_one()
    await pilot.end(first, outcome="failure", exit_code=3, started="2001-01-01T00:00:00Z", wall=0.01)
    await pilot.end(await pilot.claim_one())
    found_spans = {span.name: span for span in await spans(traced, receiver)}
    whole = found_spans["job align"]
    assert (whole.parent, whole.service, whole.failed) == (ABOVE, "forestay-server", False)
    assert whole.attributes["forestay.job"] == job
    assert whole.attributes["forestay.attempts"] == 2
    under = [span for span in found_spans.values() if span.parent == whole.id]
    assert {entry.name for entry in under} >= {"submit", "attempt 1", "decide: retry", "attempt 2", "incident abort"}
    assert (found_spans["attempt 1"].failed, found_spans["attempt 2"].failed) == (True, False)
    assert found_spans["attempt 1"].attributes["process.exit.code"] == 3
    run = found_spans["run"]
    assert (run.service, run.parent) == ("forestay-pilot", found_spans["attempt 1"].id)
    assert found_spans["attempt 1"].begin <= run.begin <= run.end <= found_spans["attempt 1"].end, (
        "another clock puts it nowhere else"
    )
    assert (
        whole.begin
        <= found_spans["attempt 1"].begin
        <= found_spans["decide: retry"].end
        <= found_spans["attempt 2"].begin
        <= whole.end
    )
    assert receiver.tokens == {"Bearer t0p-s3cret"}


async def test_what_its_beginner_does_not_want_traced_is_not_and_a_share_of_the_rest(
    traced: RunningServer, receiver: OtlpReceiver, tenant: str
) -> None:
    ada = traced.person("submitter", tenant=tenant)
    await submit(ada, {}, {}, {})
    ada.headers["traceparent"] = TRACEPARENT[:-2] + "00"
    await submit_one(ada)
    ada.headers["traceparent"] = "00-" + "0" * 32 + "-not-a-trace"
    assert await submit_one(ada), "what is no trace is ignored"
    await spans(traced, receiver)
    assert receiver.spans == []


async def test_a_repeat_with_another_trace_is_the_same_request(local: RunningServer, tenant: str) -> None:
    ada = local.person("submitter", tenant=tenant)
    body = {"specification": {"name": "x", "command": ["true"]}, "jobs": [{}]}
    ids = []
    for last in "12":
        headers = {"Idempotency-Key": f"k-{tenant}", "traceparent": TRACEPARENT[:-4] + last + "-01"}
        ids.append((await ada.post("/v1/jobs", json=body, headers=headers)).json()["jobs"][0]["id"])
    assert ids[0] == ids[1]
    (stored,) = (await local.services.components.store.get([ids[0]])).values()
    assert stored.document.extra["trace"] == TRACEPARENT[:-4] + "1-01"


def test_nothing_of_opentelemetry_is_loaded_where_nobody_wants_traces(local: RunningServer) -> None:
    assert local.services.components.traces is None
    assert local.services.components.tracing is None
    assert type(unwatched(local.services.components.incidents)).__module__.startswith("forestay.adapters.")
