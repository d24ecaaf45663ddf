"""What a pilot met itself decides the cause, whatever was printed."""

from __future__ import annotations

import pytest
from tests.contract.examples import job

from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.causes.pilot_finding import (
    ExecutionFailure,
    execution_failure,
    find_cause,
    pilot_finding,
)
from forestay.domain.exceptions.evidence.evidence import AttemptStage, evidence_of
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, Token


def ending(reason: str, error: str | None = None, file: str | None = None, **more: object) -> AttemptResult:
    return AttemptResult(Token(1, 1), "c", AttemptOutcome.FAILURE, reason, error=error, file=file, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reason", "error", "file", "expected"),
    [
        ("output-failed", "ENOSPC", None, "disk elsewhere"),
        ("output-failed", "EDQUOT", None, "disk no"),
        ("output-failed", "EROFS", None, "disk elsewhere"),
        ("output-failed", "EACCES", None, "policy no"),
        ("output-failed", "ESTALE", None, "node elsewhere"),
        ("output-failed", "folder-gone", None, "node elsewhere"),
        ("output-failed", "EWEIRD", None, "disk elsewhere"),
        ("output-failed", None, None, "disk elsewhere"),
        ("disk", "EDQUOT", "x", "disk no"),
        ("disk", "ENOSPC", "x", "disk elsewhere"),
        ("disk", "EROFS", "x", "disk elsewhere"),
        ("disk", "EIO", "x", "node elsewhere"),
        ("disk", "EACCES", "x", "policy no"),
        ("disk", "ENAMETOOLONG", "x", "bad-input no"),
        ("disk", "ENOTDIR", "x/y", "bad-input no"),
        ("data-missing", "ENOENT", "x", "data-missing no"),
        ("data-missing", "EISDIR", "x", "bad-input no"),
        ("data-missing", "EACCES", "x", "policy no"),
        ("start-failed", "ENOENT", "program", "code no"),
        ("start-failed", "ENOENT", "folder", "node elsewhere"),
        ("start-failed", "ENOSPC", "folder", "disk elsewhere"),
        ("start-failed", "EAGAIN", "process", "node elsewhere"),
        ("start-failed", "E2BIG", "program", "bad-input no"),
        ("start-failed", "bad-claim", None, "bad-input no"),
        ("start-failed", "no-container", "program", "node elsewhere"),
        ("image-failed", "not-found", "x:1", "bad-input no"),
        ("image-failed", "denied", "x:1", "policy no"),
        ("image-failed", "platform", "x:1", "bad-input elsewhere"),
        ("image-failed", "network", "x:1", "network same"),
        ("image-failed", "corrupt", "x:1", "data-corrupt elsewhere"),
        ("image-failed", "ENOSPC", "x:1", "disk elsewhere"),
        ("image-failed", "unsupported", "x:1", "bad-input no"),
        ("image-failed", "runtime", "x:1", "node elsewhere"),
        ("secret-failed", "not-found", "file:x", "bad-input no"),
        ("secret-failed", "not-allowed", "file:x", "policy no"),
        ("secret-failed", "unfit", "file:x", "bad-input no"),
        ("secret-failed", "denied", "vault:x", "policy elsewhere"),
        ("secret-failed", "unreachable", "vault:x", "network same"),
        ("secret-failed", "insecure", "file:x", "policy elsewhere"),
        ("secret-failed", "no-source", "file:x", "policy elsewhere"),
        ("secret-failed", "unexpected", None, "policy elsewhere"),
        ("transfer", "HTTP 403", "x", "policy no"),
        ("transfer", "ECONNREFUSED", "x", "network same"),
        ("transfer", "HTTP 503", "x", "transfer same"),
        ("transfer", "S3 RequestExpired", "x", "transfer same"),
        ("transfer", "S3 SignatureDoesNotMatch", "x", "policy no"),
        ("transfer", "XRootD connection", "x", "network same"),
        ("transfer", "XRootD 3010", "x", "policy no"),
        ("transfer", "no xrdcp", "x", "node elsewhere"),
        ("output-failed", "HTTP 503", "x", "transfer same"),
        ("output-failed", "S3 SlowDown", "x", "transfer same"),
        ("output-failed", "HTTP 507", "x", "disk elsewhere"),
        ("output-failed", "HTTP 403", "x", "policy no"),
        ("output-failed", "connection ECONNREFUSED", "x", "network same"),
        ("output-failed", "XRootD connection", "x", "network same"),
        ("output-failed", "no addresses", None, "transfer same"),
        ("policy", None, "x", "policy no"),
        ("bad-input", None, None, "bad-input no"),
    ],
)
def test_what_the_system_says_decides(reason: str, error: str | None, file: str | None, expected: str) -> None:
    finding = pilot_finding(ending(reason, error, file))
    assert finding is not None
    assert f"{finding.cause} {finding.retry}" == expected
    assert finding.words
    assert finding.advice


@pytest.mark.parametrize(
    ("reason", "error"), [("exit", None), ("signal", None), ("start-failed", "EWEIRD"), ("exception", None)]
)
def test_what_only_the_log_can_tell_is_left_to_it(reason: str, error: str | None) -> None:
    assert pilot_finding(ending(reason, error)) is None


def test_a_log_does_not_overrule_the_system() -> None:
    document = job(last=ending("output-failed", "EACCES", stage="staging-out"))
    evidence = evidence_of(document, "OSError: [Errno 28] No space left on device\n")
    assert (evidence.stage, evidence.more["error"]) == (AttemptStage.STAGING_OUT, "EACCES")
    assert find_cause(document, evidence, Classifier(())).cause is Cause.POLICY


@pytest.mark.parametrize(
    ("reason", "stage", "expected"),
    [
        ("output-missing", None, AttemptStage.STAGING_OUT),
        ("data-missing", None, AttemptStage.STAGING_IN),
        ("exit", None, AttemptStage.EXECUTING),
        ("start-failed", "staging-in", AttemptStage.STAGING_IN),
        ("exit", "some day", AttemptStage.EXECUTING),
    ],
)
def test_a_pilot_that_does_not_say_the_stage_is_understood(
    reason: str, stage: str | None, expected: AttemptStage
) -> None:
    assert evidence_of(job(last=ending(reason, stage=stage)), "").stage is expected


def test_every_cause_at_every_stage_is_one_of_the_six_kinds() -> None:
    for cause in Cause:
        assert execution_failure(AttemptStage.STAGING_OUT, cause) is ExecutionFailure.OUTPUT
        assert execution_failure(AttemptStage.CLEANUP, cause) is ExecutionFailure.CLEANUP
    kinds = {
        execution_failure(stage, cause)
        for stage in (AttemptStage.STAGING_IN, AttemptStage.EXECUTING, None)
        for cause in Cause
    }
    assert kinds == set(ExecutionFailure)
    assert execution_failure(AttemptStage.STAGING_IN, Cause.NETWORK) is ExecutionFailure.DATA
    assert execution_failure(AttemptStage.EXECUTING, Cause.NETWORK) is ExecutionFailure.RESOURCE
    assert execution_failure(None, Cause.NODE) is ExecutionFailure.RESOURCE
