"""Job documents and specifications survive being written as JSON and read back, whatever is in them."""

from __future__ import annotations

from dataclasses import replace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.jobs.job_document import (
    AttemptOutcome,
    AttemptResult,
    Claim,
    Delivery,
    JobDocument,
    JobPhase,
    Manifest,
    SavedCheckpoint,
    State,
    Token,
    Transition,
    search_fields,
)
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import CheckpointPolicy, Effects, RetryPolicy, Specification, WhenExhausted
from forestay.formats.jobs.job_json import (
    job_from_json,
    job_to_json,
    specification_from_json,
    specification_to_json,
)

TEXT = st.text(max_size=20)
COUNT = st.integers(0, 2**40)
NUMBER = st.integers(-(2**63), 2**63 - 1)
REAL = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBER | REAL | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
TOKENS = st.builds(Token, COUNT, COUNT)
RESOURCES = st.builds(Resources, COUNT, COUNT, COUNT, COUNT, st.none() | COUNT)
RETRIES = st.builds(RetryPolicy, COUNT, COUNT, st.sampled_from(WhenExhausted))
MANIFESTS = st.builds(Manifest, TEXT, TEXT, COUNT, COUNT)
ENDINGS = st.builds(
    AttemptResult, TOKENS, TEXT, st.sampled_from(AttemptOutcome), TEXT, st.none() | NUMBER, st.none() | NUMBER, st.none() | COUNT,
    st.none() | REAL, st.none() | REAL, st.none() | COUNT, TEXT, st.none() | MANIFESTS,
)  # fmt: skip
EXTRA = st.dictionaries(TEXT.map(lambda name: f"x-{name}"), JSON, max_size=3)

DOCUMENTS = st.builds(
    JobDocument,
    id=TEXT, tenant=TEXT, specification=TEXT, name=TEXT, owner=TEXT, created=COUNT, changed=COUNT, resources=RESOURCES,
    index=st.none() | COUNT, parameters=st.dictionaries(TEXT, JSON, max_size=3), team=TEXT,
    labels=st.dictionaries(TEXT, TEXT, max_size=3), priority=st.integers(-1000, 1000),
    expected_runtime=st.none() | COUNT, retry=RETRIES, not_before=COUNT, state=st.sampled_from(State),
    phase=st.none() | st.sampled_from(JobPhase), generation=COUNT, attempt=COUNT,
    claim=st.none() | st.builds(Claim, TEXT, TEXT, TEXT, COUNT), former_claim=st.none() | TEXT,
    holders=st.lists(TEXT, max_size=3).map(tuple), held_completion=st.none() | ENDINGS, last=st.none() | ENDINGS,
    winner=st.none() | ENDINGS, failures=COUNT, releases=COUNT, overlap_possible=st.booleans(), confirmations=COUNT,
    delivery=st.none() | st.builds(Delivery, TEXT, COUNT, st.none() | COUNT, st.booleans()), rev=COUNT,
    history=st.lists(st.builds(Transition, COUNT, COUNT, TEXT, TEXT, COUNT, TEXT, TEXT), max_size=3).map(tuple),
    min_writer=COUNT, extra=EXTRA,
    checkpoint=st.none()
    | st.builds(SavedCheckpoint, TOKENS, TEXT, COUNT, MANIFESTS, TEXT, COUNT, COUNT, st.none() | MANIFESTS),
)  # fmt: skip

SPECIFICATIONS = st.builds(
    Specification,
    id=TEXT, tenant=TEXT, name=TEXT, command=st.lists(TEXT, max_size=3).map(tuple),
    environment=st.dictionaries(TEXT, TEXT, max_size=3), resources=RESOURCES,
    outputs=st.lists(TEXT, max_size=3).map(tuple), effects=st.sampled_from(Effects), retry=RETRIES, extra=EXTRA,
    checkpoint=st.none() | st.builds(CheckpointPolicy, st.lists(TEXT, min_size=1, max_size=3).map(tuple), TEXT, COUNT, COUNT),
)  # fmt: skip


def through_bytes(document: JobDocument) -> JobDocument:
    return job_from_json(orjson.loads(orjson.dumps(job_to_json(document))))


@given(DOCUMENTS)
def test_every_job_is_read_back_as_it_was(document: JobDocument) -> None:
    assert through_bytes(document) == document


@given(DOCUMENTS)
def test_a_winner_that_is_the_last_end_is_read_back_too(document: JobDocument) -> None:
    document = replace(document, winner=document.last)
    assert through_bytes(document) == document


@given(DOCUMENTS)
def test_the_searched_fields_stand_beside_the_document_and_are_not_read_from_it(document: JobDocument) -> None:
    data = job_to_json(document)
    fields = search_fields(document)
    assert {name: data.get(name) for name in fields} == fields
    for name in fields:
        data[name] = "spoilt"
    assert job_from_json(data) == document


@given(DOCUMENTS, EXTRA)
def test_unknown_fields_survive_a_rewrite(document: JobDocument, unknown: dict[str, object]) -> None:
    stored = orjson.loads(orjson.dumps(job_to_json(document) | unknown))
    rewritten = job_to_json(replace(job_from_json(stored), rev=document.rev + 1))
    assert {name: rewritten[name] for name in unknown} == unknown


@given(SPECIFICATIONS)
def test_every_specification_is_read_back_as_it_was(spec: Specification) -> None:
    assert specification_from_json(orjson.loads(orjson.dumps(specification_to_json(spec)))) == spec
