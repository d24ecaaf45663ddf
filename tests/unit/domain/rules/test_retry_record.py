"""What became of the failures of one error that were tried again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import IncidentStatus
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, State, Token, Transition
from forestay.domain.jobs.resources import Resources
from forestay.domain.rules.retry_record import RetryRecord, retry_record


def incident(number: int, job: str, at: int) -> IncidentStatus:
    return IncidentStatus(f"i{number}", "lab", "ann", ExceptionType.ABORT, at, job=job, fingerprint="1-a")


def job(name: str, state: State, *, claims: tuple[int, ...] = (), ok: bool = False) -> JobDocument:
    history = tuple(Transition(n, at, "claim", "running", n, "p", "") for n, at in enumerate(claims, 1))
    winner = AttemptResult(Token(0, len(claims)), "c", AttemptOutcome.OK) if ok else None
    extra: dict[str, Any] = {"state": state, "history": history, "winner": winner, "attempt": len(claims)}
    return JobDocument(name, "lab", "spec", name, "ann", 0, 0, Resources(), **extra)


def test_the_job_tells_of_its_last_failure_and_the_earlier_ones_did_not_help() -> None:
    statuses = [incident(1, "well", 10), incident(2, "well", 20), incident(3, "bad", 10), incident(4, "given-up", 10)]
    statuses += [incident(5, "running", 10), incident(6, "gone", 10), incident(7, "", 10), incident(8, "held", 10)]
    jobs = {
        "well": job("well", State.COMPLETED, claims=(5, 15, 25), ok=True),
        "bad": job("bad", State.FAILED, claims=(5, 15)),
        "given-up": job("given-up", State.FAILED, claims=(5,)),
        "running": job("running", State.RUNNING, claims=(5, 15)),
        "held": job("held", State.FAULTED, claims=(5, 15)),
    }
    record = retry_record(statuses, jobs)
    assert record == RetryRecord(seen=8, retried=4, helped=1)
    assert record.words == "seen 8 times here, retry helped 1 of 4"


def test_words_for_what_is_new_and_for_what_is_frequent() -> None:
    assert RetryRecord(1).words == "seen once here, no retry has ended"
    assert RetryRecord(100, whole=False).words == "seen 100+ times here", (
        "older retries, which were not read, may have ended"
    )
    assert RetryRecord(100, 90, 80, whole=False).words == "seen 100+ times here, retry helped 80 of 90"


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50)), max_size=12),
    st.dictionaries(
        st.sampled_from("abc"),
        st.tuples(st.sampled_from(State), st.lists(st.integers(0, 50), max_size=4), st.booleans()),
    ),
)
def test_no_count_exceeds_another(seen: list[tuple[str, int]], known: dict[str, tuple[State, list[int], bool]]) -> None:
    statuses = [incident(number, name, at) for number, (name, at) in enumerate(seen)]
    jobs = {
        name: job(name, State.COMPLETED if ok else state, claims=tuple(sorted(claims)), ok=ok)
        for name, (state, claims, ok) in known.items()
    }
    record = retry_record(statuses, jobs)
    assert record.helped <= record.retried <= record.seen == len(seen)
    assert record == retry_record(statuses[::-1], jobs)
