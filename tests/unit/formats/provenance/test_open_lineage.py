"""Events of OpenLineage, judged by the published schemas."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tests.contract.examples import job, specification

from forestay.domain.jobs.inputs import JobInput
from forestay.domain.jobs.job_document import (
    AttemptOutcome,
    AttemptResult,
    FlowRef,
    JobDocument,
    Manifest,
    State,
    Token,
    Transition,
)
from forestay.formats.provenance.open_lineage import job_events, run_events, run_id
from forestay.ports.flows.flow_engine import RunSummary

FOLDER = Path(__file__).with_name("openlineage")
NOW = 1_700_000_000_000


@cache
def schemas() -> dict[str, Any]:
    documents = [json.loads(path.read_text()) for path in FOLDER.glob("*.json")]
    return {document["$id"]: document for document in documents}


@cache
def judge(ref: str) -> Callable[[Any], None]:
    made = jsonschema_rs.Draft202012Validator(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": ref},
        retriever=lambda uri: schemas()[uri.partition("#")[0]],
        validate_formats=True,
    )
    return made.validate


def check(event: Any) -> None:
    """Against the schema that the event names, and each facet against its own."""
    judge(event["schemaURL"])(event)
    for holder in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
        for facet in holder.get("facets", {}).values():
            judge(facet["_schemaURL"])(facet)


def told(document: JobDocument, *lines: tuple[int, str, State, int]) -> JobDocument:
    history = tuple(
        Transition(n, at, event, state.value, attempt, "p", "why")
        for n, (at, event, state, attempt) in enumerate(lines, 1)
    )
    last = history[-1]
    return document.having(
        history=history, created=lines[0][0], changed=last.at, state=State(last.state), attempt=last.attempt
    )


BEGUN = ((NOW, "create", State.AVAILABLE, 0), (NOW + 10, "claim", State.RUNNING, 1))


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (State.COMPLETED, "COMPLETE"),
        (State.FORCED_COMPLETE, "COMPLETE"),
        (State.FAILED, "FAIL"),
        (State.CANCELLED, "ABORT"),
    ],
)
def test_a_job_begins_and_ends(state: State, kind: str) -> None:
    assert job_events(told(job("j"), BEGUN[0]), None, namespace="fs") == []
    (start,) = job_events(told(job("j"), *BEGUN), None, namespace="fs")
    check(start)
    assert (start["eventType"], start["eventTime"]) == ("START", "2023-11-14T22:13:20.010Z")
    done = told(job("j"), *BEGUN, (NOW + 500, "x", state, 1))
    again, end = job_events(done, None, namespace="fs")
    check(end)
    assert again == start, "a repeat is the same event"
    assert end["eventType"] == kind
    assert end["run"]["runId"] == start["run"]["runId"] == run_id(done.id)
    assert ("errorMessage" in end["run"]["facets"]) == (kind != "COMPLETE")


def test_one_that_never_ran_begins_and_is_aborted() -> None:
    kinds = [
        job_event["eventType"]
        for job_event in job_events(
            told(job("j"), BEGUN[0], (NOW + 5, "cancel", State.CANCELLED, 0)), None, namespace="fs"
        )
    ]
    assert kinds == ["START", "ABORT"]


def test_files_are_datasets_and_what_one_job_wrote_is_what_the_next_reads() -> None:
    inputs = (
        JobInput("a", "/data/{sample}.fq"),
        JobInput("b", "s3://bucket/key/b?X-Amz-Signature=t0p-s3cret"),
        JobInput("c", "https://user:t0p-s3cret@host:8443/c?token=t0p-s3cret", sha256="f" * 64),
        JobInput("d", "job:11111111-1111-4111-8111-111111111111/out.bam"),
        JobInput("e", "lfn:/cat/e"),
    )
    spec = replace(specification(), inputs=inputs)
    document = told(job("j", parameters={"sample": "s1"}), *BEGUN, (NOW + 500, "complete", State.COMPLETED, 1))
    won = AttemptResult(Token(0, 1), "c", AttemptOutcome.OK, manifest=Manifest("/out/j", "a" * 64, 2, 10))
    document = document.having(winner=won, last=won)
    _, end = job_events(document, spec, namespace="fs")
    check(end)
    place = f"fs/{document.tenant}"
    assert [(input_["namespace"], input_["name"]) for input_ in end["inputs"]] == [
        ("file", "/data/s1.fq"),
        ("s3://bucket", "key/b"),
        ("https://host:8443", "c"),
        (place, "jobs/11111111-1111-4111-8111-111111111111/outputs"),
        (place, "lfn:/cat/e"),
    ]
    (output,) = end["outputs"]
    assert (output["namespace"], output["name"]) == (place, f"jobs/{document.id}/outputs")
    assert output["facets"]["version"]["datasetVersion"] == "a" * 64
    assert "s3cret" not in json.dumps(end)


def test_a_job_of_a_run_names_its_parent() -> None:
    run = "22222222-2222-4222-8222-222222222222"
    document = told(job("j", flow_ref=FlowRef(run, "align@2", "f" * 64, -1, 0, 1)), *BEGUN)
    (start,) = job_events(document, None, namespace="fs", flow="reads")
    check(start)
    assert start["job"]["name"] == "reads.align"
    parent = start["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["job"]["name"]) == (run, "reads")
    summary = RunSummary(run, document.tenant, "ada", "reads", "f" * 64, "completed", NOW, NOW + 9)
    begun, end = run_events(summary, namespace="fs")
    check(begun)
    check(end)
    assert begun["run"]["runId"] == run
    assert (begun["job"]["namespace"], begun["job"]["name"]) == (parent["job"]["namespace"], "reads")
    for state, kind in (("failed", "FAIL"), ("broken", "FAIL"), ("removed", "ABORT"), ("terminated", "ABORT")):
        *_, end = run_events(summary._replace(state=state), namespace="fs")
        check(end)
        assert end["eventType"] == kind


def test_the_judge_finds_what_is_wrong() -> None:
    (start,) = job_events(told(job("j"), *BEGUN), None, namespace="fs")
    with pytest.raises(jsonschema_rs.ValidationError):
        check(start | {"eventType": "BEGUN"})
    with pytest.raises(jsonschema_rs.ValidationError):
        check(start | {"run": {"runId": "no uuid"}})
    assert run_id("not-a-uuid") == run_id("not-a-uuid")
