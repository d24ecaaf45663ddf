"""How often and after which wait another try is worth it, by the whole evidence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.packs.shipped import classifier

from forestay.domain.exceptions.causes.cause import SURE, Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.exceptions.incidents.retry_policy import (
    INFRASTRUCTURE,
    LONG_FOR_OUTPUTS,
    TRIES_WHEN_SURE,
    infrastructure_sign,
    verdict_words,
    with_verdict,
)

UNKNOWN = CauseFinding(Cause.UNKNOWN, 0.2, RetryNeed.NO, words="Nobody knows.")


def verdict(finding: CauseFinding, evidence: Evidence | None = None) -> str:
    judged = with_verdict(finding, evidence or Evidence(exit_code=1))
    return verdict_words(judged.retry, judged.tries, judged.wait)


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (CauseFinding(Cause.NETWORK, 0.76, RetryNeed.SAME), "same, once, after 1 min"),
        (CauseFinding(Cause.NODE, 0.95, RetryNeed.ELSEWHERE), f"elsewhere, up to {TRIES_WHEN_SURE} times, at once"),
        (CauseFinding(Cause.UNKNOWN, 0.3, RetryNeed.SAME), "same, once, after 10 min"),
        (CauseFinding(Cause.MEMORY, 0.95, RetryNeed.CHANGED), "changed"),
        (CauseFinding(Cause.NETWORK, 0.95, RetryNeed.NO), "no"),
        (CauseFinding(Cause.CODE, 0.95, RetryNeed.NO), "no"),
    ],
)
def test_a_finding_says_how_often_and_after_which_wait(finding: CauseFinding, words: str) -> None:
    assert verdict(finding) == words


@pytest.mark.parametrize(
    "line",
    [
        "fatal: the frobnicator lost its network",
        "error: slurmctld says the strange thing",
        "write failed on the lustre client",
        "mlx5 error: completion with status 12",
        "task aborted: node failed health check",
    ],
)
def test_an_unknown_failure_with_a_sign_of_the_infrastructure_is_worth_one_more_try(line: str) -> None:
    evidence = Evidence(exit_code=1, log_tail=("step 1", line))
    judged = with_verdict(UNKNOWN, evidence)
    assert verdict_words(judged.retry, judged.tries, judged.wait) == "same, once, after 10 min"
    assert judged.cause is Cause.UNKNOWN
    assert "It may be the infrastructure" in judged.words


def test_a_signal_from_outside_is_a_sign_unless_the_kernel_killed_for_memory() -> None:
    assert infrastructure_sign(Evidence(signal=15)) == "SIGTERM came from outside the job"
    assert infrastructure_sign(Evidence(exit_code=137)) == "SIGKILL came from outside the job"
    assert not infrastructure_sign(Evidence(signal=9, oom_kills=1))
    assert not infrastructure_sign(Evidence(signal=11)), "a program that crashes is no infrastructure"


@pytest.mark.parametrize(
    "log",
    [
        ("Traceback (most recent call last):", "FrobError: seven"),
        ("srun: error: n17: task 0: Exited with exit code 1",),
        ("Abort(1) on node 0 (rank 0 in comm 0): application called MPI_Abort",),
        ("WARNING: network is slow, retrying", "FrobError: seven"),
        ("network set up", "all storage servers found", "FrobError: seven"),
        ("fatal: the network was lost", "reading", "reading", "reading", "reading", "FrobError: seven"),
    ],
    ids=["a program's", "a wrapper's", "a rank's node", "only warned", "nothing wrong", "survived"],
)
def test_what_is_no_sign(log: tuple[str, ...]) -> None:
    assert with_verdict(UNKNOWN, Evidence(exit_code=1, log_tail=log)) == UNKNOWN


@pytest.mark.parametrize(("seconds", "words"), [(5, "same, once, after 1 min"), (LONG_FOR_OUTPUTS, "no"), (600, "no")])
def test_outputs_that_were_long_waited_for_are_not_late(seconds: int, words: str) -> None:
    evidence = Evidence(
        exit_code=1,
        log_tail=(
            "MissingOutputException in rule sort in file /wf/Snakefile, line 40:",
            f"Job 12 completed successfully, but some output files are missing. Missing files after {seconds} seconds. This might be due to filesystem latency.",
        ),
    )
    finding = classifier().classify(evidence)
    assert (finding.cause, finding.pattern) == (Cause.OUTPUT_MISSING, "outputs-late")
    assert verdict(finding, evidence) == words


@given(
    st.builds(CauseFinding, st.sampled_from(Cause), st.floats(0, 1), st.sampled_from(RetryNeed)),
    st.lists(st.text(), max_size=6),
)
def test_tries_are_given_exactly_where_a_try_may_help(finding: CauseFinding, log: list[str]) -> None:
    judged = with_verdict(finding, Evidence(exit_code=1, log_tail=tuple(log)))
    assert bool(judged.tries) == (judged.retry in (RetryNeed.SAME, RetryNeed.ELSEWHERE))
    assert judged.tries <= 1 or (judged.cause in INFRASTRUCTURE and judged.confidence >= SURE)
    assert with_verdict(judged, Evidence(exit_code=1, log_tail=tuple(log))).tries == judged.tries
