"""A submitted job, and the document created from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from forestay.domain.jobs.checkpoint import CHECKPOINT, least_seconds
from forestay.domain.jobs.colocation_key import colocation
from forestay.domain.jobs.container_image import RUNTIMES, suitable_runtimes
from forestay.domain.jobs.job_document import (
    DOWNSTREAM,
    EFFECTS,
    TRACE,
    AttemptResult,
    Delivery,
    FlowRef,
    JobDocument,
    State,
    Transition,
)
from forestay.domain.jobs.lifecycle import Event, step
from forestay.domain.jobs.requirements import needs_extra
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.reuse import result_job
from forestay.domain.jobs.specification import Effects, Specification


@dataclass(frozen=True, slots=True)
class Submission:
    """A job requested by a client or a task."""

    specification: Specification
    owner: str
    name: str | None = None
    team: str = ""
    index: int | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    expected_runtime: int | None = None
    resources: Resources | None = None
    not_before: int = 0
    callback: str | None = None
    held: bool = False
    holders: tuple[str, ...] = ()
    """Holders other than the owner, from the start."""
    downstream: str = ""
    """The task server that it is meant for, or `any`; empty: a pilot."""
    flow_ref: FlowRef | None = None
    generation: int = 0
    """Above 0: the store lost the job's document, and it is created again."""


def new_job(submission: Submission, *, job: str, now: int, by: str, trace: str = "") -> JobDocument:
    """The first version of a job's document; `trace`: the context that came with the request."""
    spec = submission.specification
    return JobDocument(
        id=job,
        tenant=spec.tenant,
        specification=spec.id,
        name=submission.name or spec.name,
        owner=submission.owner,
        created=now,
        changed=now,
        resources=submission.resources or spec.resources,
        index=submission.index,
        parameters=submission.parameters,
        team=submission.team,
        labels=submission.labels,
        priority=submission.priority,
        expected_runtime=submission.expected_runtime,
        retry=spec.retry,
        stages=bool(spec.inputs or spec.container),
        not_before=submission.not_before,
        holders=((submission.owner,) if submission.held else ()) + submission.holders,
        generation=submission.generation,
        flow_ref=submission.flow_ref,
        delivery=Delivery(url=submission.callback) if submission.callback else None,
        rev=1,
        history=(Transition(1, now, Event.CREATE.value, State.AVAILABLE.value, 0, by, ""),),
        extra=_extra(submission, spec, trace),
    )


def _extra(submission: Submission, spec: Specification, trace: str) -> Mapping[str, object]:
    met: Mapping[str, object] = {}
    if spec.extra or submission.labels:
        met = colocation(spec, submission.labels, submission.parameters, submission.index, _run(submission.flow_ref))
    if trace:
        met = {**met, TRACE: trace}
    if spec.container:
        met = {**met, RUNTIMES: list(suitable_runtimes(spec.container))}
    if spec.effects is Effects.EXTERNAL:
        met = {**met, EFFECTS: spec.effects.value}
    if needs := needs_extra(spec):
        met = {**met, **needs}
    if spec.checkpoint is not None:
        met = {**met, CHECKPOINT: least_seconds(spec.checkpoint)}
    return {**met, DOWNSTREAM: submission.downstream} if submission.downstream else met


class JobElement(NamedTuple):
    """What distinguishes one job of a task from the others."""

    job: str
    at: int | None
    """Its index."""
    parameters: Mapping[str, object]
    flow_ref: FlowRef | None
    extra: Mapping[str, object] = MappingProxyType({})
    """Further fields of its document."""
    reused: AttemptResult | None = None
    """The result of an earlier job, which replaces its own."""
    note: str = ""
    """A note in the first line of its story."""


def new_jobs(
    common: Submission, elements: Iterable[JobElement], *, now: int, by: str, trace: str = ""
) -> Iterator[JobDocument]:
    """The first versions of many documents that differ in little else."""
    first = new_job(common, job="", now=now, by=by, trace=trace)
    spec = common.specification
    for job, at, parameters, flow_ref, extra, reused, note in elements:
        made = first.having(id=job, index=at, parameters=parameters, flow_ref=flow_ref)
        if spec.extra or common.labels:
            met = colocation(spec, common.labels, parameters, at, _run(flow_ref))
            made = made.having(extra={**first.extra, **met})
        if extra:
            made = made.having(extra={**made.extra, **extra})
        if note:
            made = made.having(history=(made.history[0]._replace(note=note),))
        if reused is not None:
            made = step(made, Event.REUSE, now=now, by=by, note=f"job {result_job(made)}", winner=reused, last=reused)
        yield made


def _run(flow_ref: FlowRef | None) -> str:
    return flow_ref.run if flow_ref is not None else ""
