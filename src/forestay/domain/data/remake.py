"""A *remake*: a new job with the specification and parameters of a producer whose outputs are lost, or damaged in every replica.

The producer stays completed, since no job leaves a final state. It records the remake, and requests for its outputs return those of the remake as soon as
they are committed. A job that failed because the outputs were missing is held in the meantime, by the remake's own holder.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from uuid import NAMESPACE_URL, uuid5

from forestay.domain.jobs.inputs import filled_text
from forestay.domain.jobs.job_document import AttemptResult, JobDocument, State, downstream_of
from forestay.domain.jobs.lifecycle import Event, TransitionRefused, allowed, step
from forestay.domain.jobs.specification import Effects, RunnerKind, Specification
from forestay.domain.jobs.steering import MAX_HOLDERS
from forestay.domain.jobs.submission import JobElement, Submission

REMAKE = "remake"
"""The field of a remake's document: whose outputs it makes, for which job, and how many remakes led to it."""
REMADE_BY = "remade_by"
"""The field of a producer's document that names the job that makes its outputs again."""
LOST = frozenset({"data-missing", "data-corrupt"})
"""What a pilot reports for an input of which no replica was found as committed."""
_COMMITS = frozenset({Event.COMPLETE.value, Event.ADOPT.value, Event.REUSE.value})


def is_lost(last: AttemptResult | None) -> bool:
    """Whether an attempt failed because an input was lost or damaged; an interrupted transfer says nothing about the file."""
    return last is not None and last.reason in LOST


def was_made(producer: JobDocument, spec: Specification, path: str) -> bool:
    """Whether a job can have committed such an output according to its specification: a file that matches, or one in a folder that does."""
    if producer.winner is None or producer.winner.manifest is None:
        return False
    for pattern in (*spec.outputs, *spec.named_outputs.values()):
        wanted = filled_text(pattern, producer.parameters, producer.index).replace("**/", "*").rstrip("/")
        if fnmatch.fnmatchcase(path, wanted) or fnmatch.fnmatchcase(path, f"{wanted}/*"):
            return True
    return False


def why_not_remade(producer: JobDocument, spec: Specification, *, owner: str) -> str:
    """Why the outputs of a job may not be made again automatically; empty: they may. ``owner``: of the job that needs them."""
    if producer.state is not State.COMPLETED:
        return f"job {producer.id} is {producer.state}"
    if spec.effects is not Effects.INTERNAL:
        return f"job {producer.id} has external effects, and another run would repeat them; a person must decide"
    if spec.runner is not RunnerKind.PROCESS:
        return f"job {producer.id} was a call in an interpreter that keeps its state"
    if producer.owner != owner:
        return f"job {producer.id} belongs to {producer.owner}, who must decide whether it runs again"
    return ""


def remake_id(producer: JobDocument) -> str:
    """The id of the remake of a job's outputs: always the same, so that a second request finds the first one's remake."""
    return str(uuid5(NAMESPACE_URL, f"forestay:remake:{producer.tenant}:{producer.id}"))


def remake_depth(document: JobDocument) -> int:
    """How many remakes led to a job, each because the one before lacked an input; 0: it is not a remake."""
    depth = _note(document).get("depth")
    return depth if isinstance(depth, int) else 0


def remade_by(document: JobDocument) -> str:
    """The job that makes a producer's outputs again; empty: none does."""
    name = document.extra.get(REMADE_BY) if document.extra else None
    return name if isinstance(name, str) else ""


def holder_of_remake(remake: str) -> str:
    """The holder that holds a job until the remake has ended."""
    return f"{REMAKE}:{remake}"


def remake_submission(
    producer: JobDocument, spec: Specification, consumer: JobDocument, incident: str
) -> tuple[Submission, JobElement]:
    """The remake: a copy of the producer, for the job that needs its outputs. It appears among the jobs of its run, which does not wait for it."""
    submission = Submission(
        specification=spec,
        owner=producer.owner,
        name=producer.name,
        team=producer.team,
        labels=producer.labels,
        priority=max(producer.priority, consumer.priority),
        expected_runtime=producer.expected_runtime,
        resources=producer.resources,
        downstream=downstream_of(producer),
    )
    flow_ref = producer.flow_ref._replace(of=0, prompt=False) if producer.flow_ref is not None else None
    note = {"of": producer.id, "for": consumer.id, "depth": remake_depth(consumer) + 1}
    words = f"It makes the lost outputs of job {producer.id} again for job {consumer.id}; incident {incident}"
    element = JobElement(
        remake_id(producer), producer.index, producer.parameters, flow_ref, extra={REMAKE: note}, note=words
    )
    return submission, element


def note_remake(producer: JobDocument, remake: str, *, now: int, by: str) -> JobDocument | TransitionRefused:
    """The producer with the remake recorded."""
    if remade_by(producer) == remake:
        return producer
    if not allowed(producer, Event.REMAKE):
        return TransitionRefused(f"the job is {producer.state}")
    extra = {**producer.extra, REMADE_BY: remake}
    # Its owner was notified when it ended.
    return step(producer, Event.REMAKE, now=now, by=by, note=f"job {remake}", extra=extra, delivery=producer.delivery)


def wait_for_remake(
    document: JobDocument, holder: str, *, now: int, by: str, reason: str
) -> JobDocument | TransitionRefused:
    """The failed job, claimable again when the holder releases it, or at once without one. The attempt is not charged to it: its input was lost through no fault of its own."""
    if not allowed(document, Event.RETRY):
        return TransitionRefused(f"the job is {document.state}, not faulted")
    holders = (*document.holders, holder) if holder and holder not in document.holders else document.holders
    if len(holders) > MAX_HOLDERS:
        return TransitionRefused(f"{MAX_HOLDERS} holders already hold the job")
    failures = max(0, document.failures - 1)
    return step(document, Event.RETRY, now=now, by=by, note=reason, not_before=now, holders=holders, failures=failures)


def committed_since(producer: JobDocument, consumer: JobDocument) -> bool:
    """Whether outputs were committed after a job was last claimed: then its attempt cannot have used them."""
    return _last(producer, _COMMITS) > _last(consumer, {Event.CLAIM.value})


def _last(document: JobDocument, events: Iterable[str]) -> int:
    return max((line.at for line in document.history if line.event in events), default=0)


def _note(document: JobDocument) -> Mapping[str, object]:
    note = document.extra.get(REMAKE) if document.extra else None
    return note if isinstance(note, Mapping) else {}
