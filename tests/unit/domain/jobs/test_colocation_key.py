"""Whom a job is brought together with, as its specification or its labels say it."""

from __future__ import annotations

from forestay.domain.jobs.colocation_key import COLOCATE, ColocationKey, colocation_key, colocation_of
from forestay.domain.jobs.job_document import FlowRef
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import JobElement, Submission, new_job, new_jobs
from forestay.formats.jobs.job_json import job_from_json, job_to_json, specification_from_json, specification_to_json

SPEC = Specification("s", "t", "noop", ("true",), extra={COLOCATE: {"key": "run-{run}", "room": 2, "of": 3}})
PLAIN = Specification("s", "t", "noop", ("true",))


def test_a_specification_names_it_with_the_parameters_of_each_job() -> None:
    job = new_job(Submission(SPEC, "ada", parameters={"run": 7}), job="j", now=1, by="ada")
    assert colocation_of(job) == ColocationKey("run-7", 2, 3)
    assert colocation_of(job_from_json(job_to_json(job))) == ColocationKey("run-7", 2, 3)
    assert specification_from_json(specification_to_json(SPEC)) == SPEC


def test_labels_of_a_task_name_it_within_the_run() -> None:
    common = Submission(PLAIN, "ada", labels={"colocate": "run-{run}", "colocate-slots": "2", "colocate-jobs": "x"})
    flow_ref = FlowRef("run-1", "w", "f", -1, 0, 1)
    jobs = list(
        new_jobs(
            common,
            [JobElement("a", 0, {"run": 1}, flow_ref), JobElement("b", 1, {"run": 2}, flow_ref)],
            now=1,
            by="ada",
        )
    )
    assert [colocation_of(job) for job in jobs] == [
        ColocationKey("run-1:run-1", 2, 0),
        ColocationKey("run-1:run-2", 2, 0),
    ]


def test_others_meet_nobody() -> None:
    assert colocation_of(new_job(Submission(PLAIN, "ada", labels={"a": "b"}), job="j", now=1, by="ada")) is None
    assert [colocation_key(entry) for entry in (None, "", 3, {"room": 2})] == [None] * 4
