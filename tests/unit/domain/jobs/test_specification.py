"""What a job of several nodes may ask for, and what it counts for."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
