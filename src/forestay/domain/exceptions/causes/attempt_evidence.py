"""What a pilot's end of an attempt says of its failure: the evidence, and the cause that it points to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forestay.domain.exceptions.causes.cause import Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.causes.pilot_finding import LOST, decided_by_error, pilot_finding
from forestay.domain.exceptions.evidence.evidence import LONGEST_WORD, AttemptStage, Evidence, bounded_lines
from forestay.domain.exceptions.evidence.redaction import redacted, redacted_lines
from forestay.domain.jobs.job_document import AttemptResult, JobDocument
from forestay.domain.jobs.lifecycle import Event

_STAGES = {
    "data-missing": AttemptStage.STAGING_IN,
    "transfer": AttemptStage.STAGING_IN,
    "data-corrupt": AttemptStage.STAGING_IN,
    "output-missing": AttemptStage.STAGING_OUT,
    "output-failed": AttemptStage.STAGING_OUT,
}
"""How far an attempt was whose pilot does not say it, by the reason of its end; others were executing."""
_KILL = 9


def evidence_of(document: JobDocument, log_tail: str) -> Evidence:
    """The evidence of a faulted job's last attempt, with nothing in it that nobody may read."""
    last = document.last
    if last is None or _lost(document):
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
        stage=_stage(last),
        more={"reason": last.reason, **_told(last)},
    )


def _lost(document: JobDocument) -> bool:
    """Whether it is faulted since it was lost too often; what an earlier attempt ended with says nothing of that."""
    return bool(document.history) and document.history[-1].event == Event.QUARANTINE


def lost_with(document: JobDocument) -> tuple[str, ...]:
    """The pilots that held it, the newest first, as far as its story goes back."""
    held = (transition.by for transition in reversed(document.history) if transition.event == Event.CLAIM)
    return tuple(dict.fromkeys(held))


def with_batch_word(
    evidence: Evidence, *, word: str, reason: str, nodes: Sequence[str], pilot: str, batch_job: str
) -> Evidence:
    """The evidence, with what a batch system said of the batch job that the attempt's pilot lived in."""
    return replace(
        evidence,
        scheduler_state=word[:LONGEST_WORD],
        scheduler_reason=redacted(reason[:LONGEST_WORD]),
        node=evidence.node or ",".join(nodes[:8]),
        more={**evidence.more, "pilot": pilot, "batch_job": batch_job},
    )


def cleanup_evidence(document: JobDocument, error: str, words: str) -> Evidence:
    """The evidence that the working folder of a job's last attempt could not be cleared."""
    before = evidence_of(document, "")
    line = redacted_lines(bounded_lines(words))
    return replace(before, stage=AttemptStage.CLEANUP, log_tail=line, more={"reason": "cleanup", "error": error})


def _stage(ending: AttemptResult) -> AttemptStage:
    try:
        return AttemptStage(ending.stage or "")
    except ValueError:
        return _STAGES.get(ending.reason, AttemptStage.EXECUTING)


def _told(ending: AttemptResult) -> dict[str, object]:
    fields = {"error": ending.error, "file": redacted(ending.file) if ending.file else None}
    return {name: value for name, value in fields.items() if value}


def find_cause(document: JobDocument, evidence: Evidence, classifier: Classifier) -> CauseFinding:
    """Why the last attempt did not end well: what the pilot knows for sure, or else what the patterns say."""
    if document.last is None or evidence.more.get("reason") == "lost":
        return _lost_finding(evidence, classifier)
    known = pilot_finding(document.last)
    read = classifier.classify(evidence)
    if known is None:
        return _not_for_memory(evidence, read)
    said_why = document.last.reason in ("output-failed", "transfer", "downstream-error") and not decided_by_error(
        document.last
    )
    if said_why and read.cause is not Cause.UNKNOWN and read.pattern:
        return read  # the pilot knows where it happened, and its words say why
    return replace(known, also=(read,) if read.pattern else ())


def _lost_finding(evidence: Evidence, classifier: Classifier) -> CauseFinding:
    """Why its pilots were lost: by the batch system's word where there is one that says why."""
    if not evidence.scheduler_state:
        return LOST
    read = classifier.classify(evidence)
    return read if read.pattern and read.cause is not Cause.UNKNOWN else LOST


def _not_for_memory(evidence: Evidence, read: CauseFinding) -> CauseFinding:
    """A bare SIGKILL looks like the kernel's for want of memory; where the kernel says that it killed nothing, it was someone else's."""
    killed = evidence.signal == _KILL and evidence.oom_kills == 0 and read.cause is Cause.MEMORY
    if not killed or read.lines:
        return read
    return CauseFinding(
        Cause.UNKNOWN,
        0.3,
        RetryNeed.SAME,
        words="Something outside the job killed it (SIGKILL); it was not the kernel's out-of-memory killer.",
        advice="Find out what kills processes on that host: a person, a limit, a monitor. A retry may succeed.",
        also=(read,),
    )
