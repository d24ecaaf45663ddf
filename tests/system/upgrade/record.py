"""Writes what a release keeps and takes, by that release's own code: `PYTHON_OF_THE_RELEASE tests/system/upgrade/record.py > tests/system/upgrade/RELEASE.json`."""

from __future__ import annotations

import json
import sys

from forestay.apps.config.settings import Settings
from forestay.domain.jobs.claim import claim, end, release
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, FlowRef, JobDocument, Manifest
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Effects, Specification
from forestay.domain.jobs.steering import cancel, hold
from forestay.domain.jobs.submission import Submission, new_job
from forestay.formats.jobs.job_json import job_to_json, specification_to_json

SPEC = Specification(
    id="spec-1",
    tenant="physics",
    name="align",
    command=("sh", "-c", "align {sample}"),
    environment={"LANG": "C"},
    resources=Resources(cpus=2, memory=1 << 30),
    outputs=("*.bam",),
    effects=Effects.EXTERNAL,
)
NOW = 1_790_000_000_000


def _made(name: str, **more: object) -> JobDocument:
    submission = Submission(specification=SPEC, owner="ada", labels={"run": "7"}, parameters={"sample": "b"}, **more)  # type: ignore[arg-type]
    return new_job(submission, job=name, now=NOW, by="ada")


def _claimed(name: str, **more: object) -> JobDocument:
    held = claim(_made(name, **more), claim_id="c" * 32, pilot="pilot-1", host="node1", now=NOW + 1)
    assert isinstance(held, JobDocument)
    return held


def _ended(name: str, ending_outcome: AttemptOutcome, **more: object) -> JobDocument:
    before = _claimed(name, **more)
    manifest = Manifest("/out/manifest.json", "0" * 64, 2, 77) if ending_outcome is AttemptOutcome.OK else None
    ending = AttemptResult(
        before.token,
        "c" * 32,
        ending_outcome,
        exit_code=0 if manifest else 7,
        wall=1.5,
        host="node1",
        manifest=manifest,
    )
    after = end(before, ending, now=NOW + 2, by="pilot-1", answer=lambda document, _now: document)
    document: JobDocument = after.document  # type: ignore[union-attr]
    return document


def documents() -> list[JobDocument]:
    """A job in each of the ways it can stand."""
    flow_ref = FlowRef("run-1", "align.1", "v" * 64, -1, 0, 3)
    released = release(
        _claimed("released"), claim_id="c" * 32, now=NOW + 3, by="reconciler", reason="silent", overlap_possible=True
    )
    return [
        _made("available", index=3, callback="https://example.org/told"),
        _claimed("running"),
        _ended("faulted", AttemptOutcome.FAILURE),
        _ended("completed", AttemptOutcome.OK, flow_ref=flow_ref),
        released,  # type: ignore[list-item]
        hold(_made("held"), holder="ada", now=NOW + 1, by="ada", reason="wait"),  # type: ignore[list-item]
        cancel(_made("cancelled"), now=NOW + 1, by="ada", reason="a mistake"),  # type: ignore[list-item]
    ]


def main() -> None:
    settings = {name: json.loads(Settings(state="/x").model_dump_json())[name] for name in Settings.model_fields}  # type: ignore[arg-type]
    kept = {
        "documents": [job_to_json(document) for document in documents()],
        "specification": specification_to_json(SPEC),
        "settings": settings,
    }
    json.dump(kept, sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
