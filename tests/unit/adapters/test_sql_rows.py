"""The rows of many new jobs are those that each would have by itself."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.adapters.sql.rows import job_row, new_rows, stored_job
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, FlowRef, JobDocument, Token
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import JobElement, Submission, new_job, new_jobs
from forestay.ports.errors import Permanent

texts = st.text(max_size=8) | st.sampled_from(["\0", "\ue000", "a\0b", "\ue0000", 'quo"te', "back\\slash"])
values = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | texts | st.lists(texts, max_size=2)
flow_refs = st.builds(
    FlowRef,
    run=st.sampled_from(["c1", "c2"]),
    work=st.sampled_from(["w@1", "w@2"]),
    flow=st.just("f"),
    shard=st.integers(-1, 3),
    place=st.integers(0, 5000),
    of=st.integers(0, 3),
    result=st.sampled_from(["", "out.json"]),
    above=st.sampled_from([(), ("f0",)]),
)
elements = st.builds(
    JobElement,
    job=texts,
    at=st.none() | st.integers(0, 2**33),
    parameters=st.dictionaries(texts, values, max_size=2),
    flow_ref=flow_refs,
    extra=st.dictionaries(texts, values, max_size=2),
    reused=st.none() | st.just(AttemptResult(Token(0, 1), "c", AttemptOutcome.OK, exit_code=0)),
)
commons = st.builds(
    Submission,
    st.just(Specification("s", "lab", "each", ("true",))),
    owner=texts,
    labels=st.dictionaries(texts, texts, max_size=2),
    priority=st.integers(-5, 5),
    expected_runtime=st.none() | st.integers(1, 9),
    resources=st.builds(Resources, cpus=st.integers(1, 3)),
    holders=st.sampled_from([(), ("ann",)]),
)


def _alike(documents: list[JobDocument]) -> None:
    for document, row in zip(documents, new_rows(documents), strict=True):
        wanted = job_row(document, 1)
        assert row[:-1] == wanted[:-1]
        assert orjson.loads(row[-1]) == orjson.loads(wanted[-1])
        assert stored_job(1, row[-1]).document == document


@given(common=commons, some=st.lists(elements, max_size=6), others=st.lists(elements, max_size=3))
def test_jobs_of_scatters_have_the_rows_that_each_would_have(
    common: Submission, some: list[JobElement], others: list[JobElement]
) -> None:
    first = list(new_jobs(common, some, now=1_700_000_000_000, by="run"))
    later = list(new_jobs(common, others, now=1_700_000_000_001, by="run"))
    _alike([*first, *later, new_job(common, job="alone", now=1_700_000_000_002, by="ann"), *first[:2]])


def test_one_that_cannot_be_stored_is_refused_among_others_too() -> None:
    common = Submission(Specification("s", "lab", "each", ("true",)), owner="ann")
    flow_ref = FlowRef("c", "w@1", "f", 0, 0, 9)
    good = JobElement("a", 0, {}, flow_ref)
    for bad in (
        JobElement("b" * 1001, 1, {}, flow_ref),
        JobElement("b", 2**63, {}, flow_ref),
        JobElement("b", 1, {"n": 2**70}, flow_ref),
        JobElement("b", 1, {}, flow_ref._replace(run="c" * 1001)),
    ):
        with pytest.raises(Permanent):
            new_rows(new_jobs(common, [good, bad], now=1_700_000_000_000, by="run"))
