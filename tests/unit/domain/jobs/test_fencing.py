"""Fencing: an end counts only with the token and the claim that the document has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contract.examples import NOW, ending, job

from forestay.domain.jobs.claim import Applied, Superseded, begin, claim, end, release, retry_policy
from forestay.domain.jobs.job_document import JobDocument, Token
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.jobs.specification import RetryPolicy


def running() -> JobDocument:
    """A job in its first attempt, claimed."""
    claimed = claim(job(), claim_id="c-1", pilot="pilot-1", host="node1", now=NOW)
    assert not isinstance(claimed, TransitionRefused)
    return claimed


def verdict(document: JobDocument, **changes: object) -> object:
    return end(document, replace(ending(document), **changes), now=NOW + 1, by="pilot-1")  # type: ignore[arg-type]


def test_the_end_with_both_counts() -> None:
    assert isinstance(verdict(running()), Applied)


@pytest.mark.finding("F-G2")
@pytest.mark.parametrize("token", ["lower generation", "lower attempt", "higher attempt", "higher generation"])
def test_the_right_claim_with_another_token_is_fenced(token: str) -> None:
    document = running()
    generation, attempt = document.token
    tokens = {
        "lower generation": Token(generation - 1, attempt),
        "lower attempt": Token(generation, attempt - 1),
        "higher attempt": Token(generation, attempt + 1),
        "higher generation": Token(generation + 1, attempt),
    }
    assert isinstance(verdict(document, token=tokens[token]), Superseded)


@pytest.mark.finding("F-G2")
def test_the_right_token_with_another_claim_is_fenced() -> None:
    assert isinstance(verdict(running(), claim="c-2"), Superseded)


def released() -> JobDocument:
    document = release(
        running(), claim_id="c-1", now=NOW + 1, by="orphan watch", reason="its pilot is silent", overlap_possible=True
    )
    assert not isinstance(document, TransitionRefused)
    return document


def test_a_late_end_counts_only_for_the_claim_that_was_released() -> None:
    """Until somebody claims the job again, its own former claim may still end it; no other claim may."""
    late = ending(running())
    assert isinstance(end(released(), late, now=NOW + 2, by="pilot-1"), Applied)
    assert isinstance(end(released(), replace(late, claim="c-2"), now=NOW + 2, by="pilot-1"), Superseded)


def test_a_late_end_counts_only_from_the_pilot_that_held_the_claim_or_an_heir() -> None:
    """Claims can be read by everybody in the tenant; another owner's pilot must not complete the job with outputs of its own."""
    late = ending(running())
    assert isinstance(end(released(), late, now=NOW + 2, by="pilot-2", heir=False), Superseded)
    assert isinstance(end(released(), late, now=NOW + 2, by="pilot-1", heir=False), Applied)
    assert isinstance(end(released(), late, now=NOW + 2, by="pilot-2", heir=True), Applied)


def test_only_the_claim_that_is_named_is_released() -> None:
    refused = release(running(), claim_id="c-2", now=NOW, by="orphan watch", reason="", overlap_possible=False)
    assert isinstance(refused, TransitionRefused)


@pytest.mark.parametrize(("claim_id", "pilot"), [("c-2", "pilot-1"), ("c-1", "pilot-2")])
def test_only_the_holder_begins(claim_id: str, pilot: str) -> None:
    assert isinstance(begin(running(), claim_id=claim_id, now=NOW, by=pilot), TransitionRefused)
    assert not isinstance(begin(running(), claim_id="c-1", now=NOW, by="pilot-1"), TransitionRefused)


@pytest.mark.finding("F-G2")
def test_the_wait_before_a_retry_doubles_with_each_failure() -> None:
    policy = RetryPolicy(max_attempts=6, wait=7)
    waits = [retry_policy(job(retry=policy, failures=failures)).wait for failures in range(1, 6)]
    assert waits == [7, 14, 28, 56, 112]
