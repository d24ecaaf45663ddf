"""What a pilot's end of an attempt says of its fault: the evidence, and what the pilot itself knows for sure."""

from __future__ import annotations

from holdfast.domain.faults.cause import Cause, Finding, Retry
from holdfast.domain.faults.classify import Classifier
from holdfast.domain.faults.evidence import Evidence, Stage, bounded_lines
from holdfast.domain.faults.redaction import redacted_lines
from holdfast.domain.jobs.job_document import JobDocument

_STAGES = {
    "data-missing": Stage.STAGING_IN,
    "transfer": Stage.STAGING_IN,
    "data-corrupt": Stage.STAGING_IN,
    "output-missing": Stage.STAGING_OUT,
    "output-failed": Stage.STAGING_OUT,
}
"""How far an attempt was whose end has this reason; others were executing."""

_KNOWN: dict[str, tuple[Cause, Retry, str, str]] = {
    "wall-limit": (
        Cause.TIME, Retry.CHANGED,
        "It ran longer than the time it was given, and its pilot stopped it.", "Give it more time, or cut the work in pieces.",
    ),
    "data-missing": (
        Cause.DATA_MISSING, Retry.NO,
        "An input was not where it should be.", "Look whether the file was made, and whether its place is right.",
    ),
    "data-corrupt": (
        Cause.DATA_CORRUPT, Retry.ELSEWHERE,
        "An input was there, and is not what was committed.", "Take another copy, or make the file again.",
    ),
    "transfer": (
        Cause.TRANSFER, Retry.SAME,
        "An input could not be brought.", "It mostly passes; if not, look at where the file is kept.",
    ),
    "output-missing": (
        Cause.OUTPUT_MISSING, Retry.NO,
        "It ended well, and a file that it should have left behind is not there.", "Look at its log: it may have failed without saying so.",
    ),
    "output-failed": (
        Cause.DISK, Retry.ELSEWHERE,
        "Its outputs could not be kept.", "Look at the space and the rights of the folder for outputs.",
    ),
}  # fmt: skip
"""What a pilot saw itself, and so needs no guess."""

LOST = Finding(
    Cause.NODE,
    0.7,
    Retry.ELSEWHERE,
    words="Its pilots were lost again and again while they ran it.",
    advice="Either the hosts are sick, or the job brings them down: look at what it does to its host.",
)


def evidence_of(document: JobDocument, log_tail: str) -> Evidence:
    """The evidence of a faulted job's last attempt, with nothing in it that nobody may read."""
    last = document.last
    if last is None:
        return Evidence(more={"reason": "lost", "releases": document.releases})
    needs = document.resources
    return Evidence(
        exit_code=last.exit_code,
        signal=last.signal,
        log_tail=redacted_lines(bounded_lines(log_tail)),
        peak_memory=last.peak_memory,
        memory_limit=needs.memory or None,
        oom_kills=last.oom_kills,
        disk_left=last.disk_left,
        wall_time=last.wall,
        time_limit=needs.wall,
        node=last.host,
        stage=_STAGES.get(last.reason, Stage.EXECUTING),
        more={"reason": last.reason},
    )


def find_cause(document: JobDocument, evidence: Evidence, classifier: Classifier) -> Finding:
    """Why the last attempt did not end well: what the pilot knows for sure, or else what the patterns say."""
    if document.last is None or evidence.more.get("reason") == "lost":
        return LOST
    known = _KNOWN.get(document.last.reason)
    read = classifier.classify(evidence)
    if known is None:
        return read
    cause, retry, words, advice = known
    if document.last.reason in ("output-failed", "transfer") and read.cause is not Cause.UNKNOWN and read.pattern:
        return read  # the pilot knows where it happened, and its words say why
    return Finding(cause, 0.95, retry, words=words, advice=advice, also=(read,) if read.pattern else ())
