"""Spans are made of a job's document, and made again they are the same."""

from __future__ import annotations

import pytest
from tests.contract.examples import job

from forestay.domain.jobs.job_document import FlowRef, JobDocument, State, Transition
from forestay.domain.jobs.job_spans import TraceContext, context_of, read_traceparent, spans_of

TRACE, ABOVE = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (f"00-{TRACE}-{ABOVE}-01", TraceContext(TRACE, ABOVE, True)),
        (f"00-{TRACE}-{ABOVE}-00", TraceContext(TRACE, ABOVE, False)),
        (f"cc-{TRACE}-{ABOVE}-01-more", TraceContext(TRACE, ABOVE, True)),
        (f"00-{TRACE}-{ABOVE}-01-more", None),
        (f"ff-{TRACE}-{ABOVE}-01", None),
        (f"00-{'0' * 32}-{ABOVE}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{ABOVE}-01", None),
        ("", None),
        ("00-xyz", None),
    ],
)
def test_the_header_is_read_as_its_specification_says(text: str, context: TraceContext | None) -> None:
    assert read_traceparent(text) == context


def told(document: JobDocument, *lines: tuple[int, str, str, int]) -> JobDocument:
    history = tuple(
        Transition(rev, at, event, state, attempt, "p1", "why")
        for rev, (at, event, state, attempt) in enumerate(lines, 1)
    )
    return document.having(history=history, rev=len(history), created=lines[0][0])


def test_each_write_tells_what_has_ended_by_it() -> None:
    lines = [
        (10, "create", "available", 0),
        (30, "claim", "running", 1),
        (40, "begin", "running", 1),
        (90, "failure", "faulted", 1),
        (95, "retry", "available", 1),
        (200, "claim", "running", 2),
        (250, "complete", "completed", 2),
        (260, "notify", "completed", 2),
    ]
    seen = {
        count: [(span.name, span.begin, span.end) for span in spans_of(told(job("j"), *lines[:count]))]
        for count in range(1, len(lines) + 1)
    }
    name = job("j").name
    assert seen == {
        1: [],
        2: [("queued", 10, 30)],
        3: [],
        4: [("attempt 1", 30, 90), ("stage in", 30, 40)],
        5: [("decide: retry", 90, 95)],
        6: [("queued", 95, 200)],
        7: [("attempt 2", 200, 250), (f"job {name}", 10, 250)],
        8: [],
    }


def test_one_write_may_end_several_and_a_repeat_gives_the_same() -> None:
    document = told(job("j"), (10, "create", "available", 0), (10, "claim", "running", 1))
    assert [span.name for span in spans_of(document)] == ["queued"]
    done = told(job("j"), (10, "create", "available", 0), (20, "claim", "running", 1), (30, "cancel", "cancelled", 1))
    assert spans_of(done) == spans_of(done.having(confirmations=3, state=State.CANCELLED))
    (whole,) = spans_of(done)
    assert whole.error == "why"


def test_the_jobs_of_a_run_are_in_one_trace() -> None:
    document, two = (job(name, flow_ref=FlowRef("run-1", "t@1", "f", -1, 0, 1)) for name in ("a", "b"))
    assert context_of(document) == context_of(two)
    assert context_of(job("a")) != context_of(job("b"))
    job_document = document.having(extra={"trace": f"00-{TRACE}-{ABOVE}-01"})
    assert context_of(job_document) == TraceContext(TRACE, ABOVE, True)
    assert context_of(document.having(extra={"trace": "spoilt"})) == context_of(document)
