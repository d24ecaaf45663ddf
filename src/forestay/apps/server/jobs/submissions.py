"""Turns a request into submissions, and reports all of its errors at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.jobs.schemas import JobIn, ResourcesIn, SpecificationIn, SubmitIn
from forestay.domain.jobs.checkpoint import checkpoint_as_plain, checkpoint_from_plain
from forestay.domain.jobs.colocation_key import COLOCATE
from forestay.domain.jobs.conversation import DOWNSTREAM_TAG, is_forwardable
from forestay.domain.jobs.inputs import JobInput, Staging, filled, produced, wrong_input
from forestay.domain.jobs.job_secrets import secrets_as_plain, secrets_from_plain
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import (
    Effects,
    RetryPolicy,
    RunnerKind,
    Specification,
    WhenExhausted,
    wrong_on_nodes,
)
from forestay.domain.jobs.submission import Submission
from forestay.formats.jobs.job_public import time_millis
from forestay.ports.jobs.job_store import JobStore, Stored
from forestay.ports.operations.callback_transport import CallbackTransport
from forestay.ports.operations.identity import Principal, Role
from forestay.ports.rules.conditions import ConditionProblem
from forestay.services.jobs.job_submitter import specification_named
from forestay.services.shared.loop_slices import LoopSlices

MAX_PARAMETERS = 16_384
"""Bytes of one job's parameters as JSON; larger data belongs in a file."""


def resources_from(resources: ResourcesIn, wall: float | None = None) -> Resources:
    limit = resources.wall if wall is None else int(wall)
    return Resources(resources.cpus, resources.memory, resources.disk, resources.gpus, limit, resources.nodes)


def specification_from(specification: SpecificationIn, tenant: str) -> Specification:
    content = specification.model_dump(mode="json")
    colocate = content.pop("colocate")
    if not content["container"]:
        del content["container"]  # its id is the same as before there were any
    for name in ("requires", "licences"):
        if not content[name]:
            del content[name]
    if specification.resources.nodes == 1:
        del content["resources"]["nodes"]
    checkpoint = checkpoint_from_plain(content.pop("checkpoint"))
    content |= checkpoint_as_plain(checkpoint)
    references = content.pop("secrets")
    secrets = secrets_from_plain(references) if references else {}
    if secrets:
        content |= secrets_as_plain(secrets)
    return Specification(
        id=specification_named(tenant, content | ({COLOCATE: colocate} if colocate else {})),
        tenant=tenant,
        name=specification.name,
        command=tuple(specification.command),
        environment=specification.environment,
        resources=resources_from(specification.resources),
        inputs=tuple(
            JobInput(input_.name, input_.source, input_.bytes, input_.sha256) for input_ in specification.inputs
        ),
        staging=Staging(specification.staging),
        outputs=tuple(specification.outputs),
        effects=Effects(specification.effects),
        runner=RunnerKind(specification.runner),
        container=specification.container,
        requires=specification.requires,
        licences=specification.licences,
        secrets=secrets,
        checkpoint=checkpoint,
        retry=RetryPolicy(
            specification.max_attempts, specification.retry_wait, WhenExhausted(specification.when_exhausted)
        ),
        extra={COLOCATE: colocate} if colocate else {},
    )


async def submissions_from(
    body: SubmitIn,
    who: Principal,
    notify: CallbackTransport,
    staging: OutboundPolicy,
    downstream: Callable[[str, str], str | None] = lambda _tenant, _wanted: None,
    requirements: Callable[[str], Sequence[ConditionProblem]] = lambda _text: (),
) -> list[Submission]:
    """One submission per job, in order; a `HttpProblem` with all errors. `downstream` returns the destination of a job that names a task server, by tenant and name."""
    errors: list[dict[str, object]] = []
    common = specification_from(body.specification, who.tenant) if body.specification else None
    checked: dict[str, str | None] = {}
    made: list[Submission] = []
    slices = LoopSlices()
    for place, job in enumerate(body.jobs):
        await slices.pause()
        spec = specification_from(job.specification, who.tenant) if job.specification else common
        problems = _problems(job, who, notify, checked)
        if spec is None:
            problems["specification"] = "there is none, neither here nor for all jobs"
        elif spec.inputs:
            problems |= _wrong_inputs(job, spec, staging)
        if spec is not None and (why := wrong_on_nodes(spec, _nodes(job, spec))):
            problems["resources.nodes"] = why
        if spec is not None and (wanted := job.labels.get(DOWNSTREAM_TAG)):
            problems |= _not_for_downstream(spec, wanted, downstream(who.tenant, wanted))
        errors += [{"at": f"body.jobs.{place}.{at}", "detail": detail} for at, detail in problems.items()]
        wrong = requirements(spec.requires) if spec is not None and spec.requires else ()
        errors += [{"at": f"body.jobs.{place}.specification.requires", "detail": str(problem)} for problem in wrong]
        if spec is not None and not problems and not wrong:
            made.append(_submission(job, spec, who))
    if errors:
        raise HttpProblem(422, f"{len(errors)} field(s) are invalid; no job was accepted", errors[:100])
    return made


def _nodes(job: JobIn, spec: Specification) -> int:
    return spec.resources.nodes if job.resources is None else job.resources.nodes


def _problems(job: JobIn, who: Principal, notify: CallbackTransport, checked: dict[str, str | None]) -> dict[str, str]:
    problems: dict[str, str] = {}
    if job.owner is not None and job.owner != who.subject and not who.may(Role.OPERATOR):
        problems["owner"] = "only an operator may submit for others"
    if job.callback is not None:
        if job.callback not in checked:
            checked[job.callback] = notify.check(job.callback)
        if why := checked[job.callback]:
            problems["callback"] = why
    if job.not_before is not None:
        try:
            time_millis(job.not_before)
        except (ValueError, OverflowError):
            problems["not_before"] = "expected a time such as 2026-01-31T12:00:00Z"
    if job.parameters and (why := _unfit(job.parameters)):
        problems["parameters"] = why
    return problems


def _not_for_downstream(spec: Specification, wanted: str, actual: str | None) -> dict[str, str]:
    at = f"labels.{DOWNSTREAM_TAG}"
    if actual is None:
        return {at: f"there is no downstream {wanted[:64]} for this tenant"}
    if not is_forwardable(spec):
        return {
            at: "files, secrets, function calls and jobs of several nodes cannot be forwarded to a downstream; use a TES task, which states where its files are"
        }
    return {}


def _wrong_inputs(job: JobIn, spec: Specification, staging: OutboundPolicy) -> dict[str, str]:
    """The errors in the inputs of one job, after its parameters are substituted."""
    problems: dict[str, str] = {}
    names: set[str] = set()
    for place, input_ in enumerate(spec.inputs):
        job_input = filled(input_, job.parameters, job.index)
        why = wrong_input(job_input, staging) or ("two inputs have this name" if job_input.name in names else None)
        names.add(job_input.name)
        if why:
            problems[f"specification.inputs.{place}"] = why
    return problems


async def check_producers(asked: Sequence[Submission], store: JobStore) -> None:
    """Refuse jobs whose inputs are outputs of jobs that have not committed any: they would only fail.

    A job that should wait for another belongs in a flow with it. A producer that is known to have committed keeps its outputs, so this result is still
    valid when the job runs.
    """
    wanted: dict[str, int] = {}
    for place, submission in enumerate(asked):
        for job_input in submission.specification.inputs:
            other = produced(filled(job_input, submission.parameters, submission.index).source)
            if other is not None:
                wanted.setdefault(other.job, place)
    if not wanted:
        return
    names = list(wanted)
    known: dict[str, Stored] = {}
    for start in range(0, len(names), 1000):
        known |= await store.get(names[start : start + 1000])
    errors: list[dict[str, object]] = []
    for name, place in wanted.items():
        stored = known.get(name)
        if stored is None or stored.document.tenant != asked[place].specification.tenant:
            why = f"there is no job {name}"
        elif stored.document.winner is None or stored.document.winner.manifest is None:
            why = f"job {name} is {stored.document.state} and has no committed outputs; submit this job later, or write a flow, which waits"  # fmt: skip
        else:
            continue
        errors.append({"at": f"body.jobs.{place}.specification.inputs", "detail": why})
    if errors:
        raise HttpProblem(422, f"{len(errors)} input(s) do not exist yet; no job was accepted", errors[:100])


def _unfit(parameters: Mapping[str, object]) -> str | None:
    try:
        size = len(orjson.dumps(parameters))
    except TypeError as error:  # what pydantic accepts: a number beyond 64 bits, a lone surrogate, great depth
        return f"they cannot be stored: {error}"
    return f"more than {MAX_PARAMETERS} bytes; put them into a file" if size > MAX_PARAMETERS else None


def _submission(job: JobIn, spec: Specification, who: Principal) -> Submission:
    parameters: dict[str, Any] = dict(job.parameters)
    return Submission(
        specification=spec,
        owner=job.owner or who.subject,
        name=job.name,
        team=job.team,
        index=job.index,
        parameters=parameters,
        labels=job.labels,
        priority=job.priority,
        expected_runtime=job.expected_runtime,
        resources=resources_from(job.resources) if job.resources else None,
        not_before=time_millis(job.not_before) if job.not_before else 0,
        callback=job.callback,
        held=job.hold,
        downstream=job.labels.get(DOWNSTREAM_TAG, ""),
    )
