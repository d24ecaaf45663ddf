"""A job that was lost with its pilots is judged by what the batch system says of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contract.examples import job
from tests.unit.packs.shipped import classifier

from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.causes.pilot_finding import find_cause
from forestay.domain.exceptions.evidence.evidence import evidence_of, lost_with, with_batch_word
from forestay.domain.jobs.claim import MAX_RELEASES, claim, release
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, State


def lost(document: JobDocument) -> JobDocument:
    """The same job after so many of its pilots died that it is held back."""
    for number in range(MAX_RELEASES):
        taken = claim(document, claim_id=f"c-{number}", pilot=f"p-{number}", host=f"n{number}", now=number + 1)
        assert isinstance(taken, JobDocument)
        again = release(
            taken, claim_id=f"c-{number}", now=number + 1, by="watch", reason="gone", overlap_possible=False
        )
        assert isinstance(again, JobDocument)
        document = again
    assert document.state is State.FAULTED
    return document


@pytest.mark.parametrize(
    ("word", "cause"),
    [
        ("NODE_FAIL", Cause.NODE),
        ("OUT_OF_MEMORY", Cause.MEMORY),
        ("PREEMPTED", Cause.PREEMPTED),
        ("TIMEOUT", Cause.TIME),
    ],
)
def test_the_cause_is_the_batch_systems_word(word: str, cause: Cause) -> None:
    document = lost(job("one"))
    evidence = with_batch_word(
        evidence_of(document, ""), word=word, reason="", nodes=("n2",), pilot="p-2", batch_job="4711"
    )
    assert (evidence.node, evidence.more["batch_job"], evidence.more["reason"]) == ("n2", "4711", "lost")
    assert find_cause(document, evidence, classifier()).cause is cause


def test_without_a_word_that_says_why_a_lost_job_is_the_nodes_failure() -> None:
    document = lost(job("one"))
    returned_evidence = with_batch_word(
        evidence_of(document, ""), word="COMPLETED", reason="", nodes=(), pilot="p", batch_job="1"
    )
    for evidence in (evidence_of(document, ""), returned_evidence):
        finding = find_cause(document, evidence, classifier())
        assert (finding.cause, finding.confidence) == (Cause.NODE, 0.7)


def test_the_pilots_of_its_attempts_the_newest_first() -> None:
    assert lost_with(lost(job("one")))[:2] == (f"p-{MAX_RELEASES - 1}", f"p-{MAX_RELEASES - 2}")


def test_an_earlier_failure_is_no_evidence_of_how_it_was_lost() -> None:
    document = lost(job("one"))
    before = AttemptResult(token=document.token, claim="c", outcome=AttemptOutcome.FAILURE, reason="exit", exit_code=3)
    evidence = evidence_of(replace(document, last=before), "Traceback")
    assert (evidence.exit_code, evidence.more["reason"]) == (None, "lost")
