"""What a job of several nodes may ask for, and what it counts for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forestay.domain.exceptions.evidence.evidence import evidence_of
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, RankEnd, Token
from forestay.domain.jobs.job_secrets import secrets_from_plain
from forestay.domain.jobs.resources import Resources, most_cores_of_class, resource_class
from forestay.domain.jobs.specification import RunnerKind, Specification, wrong_on_nodes
from forestay.domain.scheduling.quota import QuotaUse, use_of

PLAIN = Specification("a", "physics", "simulate", ("./simulate",))


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (replace(PLAIN, container="docker://debian:12"), "container"),
        (replace(PLAIN, secrets=secrets_from_plain({"TOKEN": "file:token"})), "secrets"),
        (replace(PLAIN, runner=RunnerKind.WARM), "function call"),
    ],
)
def test_what_one_host_prepares_is_refused_on_several(job: Specification, words: str) -> None:
    assert words in wrong_on_nodes(job, 2)
    assert not wrong_on_nodes(job, 1)
    assert not wrong_on_nodes(PLAIN, 2)


def test_a_quota_counts_all_nodes() -> None:
    assert use_of(Resources(cpus=4, gpus=2, nodes=3)) == QuotaUse(1, 12, 6)
    assert most_cores_of_class(resource_class(Resources(cpus=4, nodes=3))) == 12


def test_the_evidence_names_the_host_of_the_rank_that_failed_first() -> None:
    """Not that of the pilot, which is on the first node; where no rank failed by itself, no other host is named."""
    torn = RankEnd(1, "n2", exit_code=3)
    killed = RankEnd(0, "n1", signal=9, stopped_for="rank 1 failed")
    for ranks, host in (((torn, killed), "n2"), ((killed,), "n1-pilot"), ((), "n1-pilot")):
        last = AttemptResult(Token(1, 1), "c", AttemptOutcome.FAILURE, exit_code=3, host="n1-pilot", ranks=ranks)
        document = JobDocument("j", "t", "s", "wide", "ada", 0, 0, Resources(nodes=2), attempt=1, last=last)
        evidence = evidence_of(document, "")
        assert evidence.node == host
        assert evidence.more.get("ranks", []) == [str(rank) for rank in ranks]
