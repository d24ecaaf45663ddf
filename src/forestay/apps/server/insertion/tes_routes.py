"""GA4GH TES 1.1: tasks of unmodified clients, as Forestay jobs. At `/ga4gh/tes/v1`, and at `/v1` for clients that expect it there."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Annotated, Any

import orjson
from fastapi import Header, Query, Request, Response
from starlette.background import BackgroundTask

from forestay.apps.config.downstream_settings import downstream_for
from forestay.apps.server.http.json_bodies import parsed_json
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, Submitter, TheDesk, Viewer
from forestay.apps.server.http.router import Router
from forestay.apps.server.insertion.tes_answers import (
    BODY,
    TesCreated,
    TesList,
    TesNothing,
    TesServiceInfo,
    TesTask,
    tes_errors,
)
from forestay.apps.server.insertion.tes_urls import storage_of, wrong_urls
from forestay.domain.flows.definition.flow_problem import FlowProblem
from forestay.domain.jobs.conversation import CALLBACK_TAG, DOWNSTREAM_TAG
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.formats.ga4gh.tes_job import (
    KEY,
    MARK,
    MAX_TAGS,
    PARAMETERS,
    TASK,
    ParameterRefused,
    asked_on,
    fits,
    known_parameters,
    outputs_job,
    task_of,
    warnings_of,
)
from forestay.formats.ga4gh.tes_log import task_log
from forestay.formats.ga4gh.tes_reading import read_task
from forestay.formats.ga4gh.tes_task import TaskDocument, TaskState, TaskView, tags_match, task_json
from forestay.formats.jobs.job_public import time_text
from forestay.ports.jobs.job_store import Stored
from forestay.ports.operations.identity import Principal, Role
from forestay.services.insertion.task_factory import CreatedTask
from forestay.services.insertion.task_states import tasks_of
from forestay.services.shared.checked_writer import WriteApplied

TES_VERSION = "1.1.0"
LONG, SHORT = "/ga4gh/tes/v1", "/v1"
MOST_PAGES = 20
"""The most pages of the store that one response searches for matching tasks."""
MOST_WRONG = 50


def _problem(findings: Sequence[FlowProblem]) -> HttpProblem:
    errors = [{"at": finding.where or "task", "detail": finding.message} for finding in findings[:MOST_WRONG]]
    return HttpProblem(400, f"{len(findings)} field(s) of the task are invalid", errors)


async def _asked(request: Request) -> TaskDocument:
    try:
        data = await parsed_json(request)
    except ValueError as error:
        raise HttpProblem(400, f"the body is not valid JSON: {error}") from error
    task = read_task(data)
    if isinstance(task, tuple):
        raise _problem(task)
    return task


async def create(
    request: Request,
    context: TheDesk,
    who: Submitter,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """Make a task."""
    parts = context.services.components
    task = await _asked(request)
    wanted = task.tags.get(DOWNSTREAM_TAG, "")
    downstream = downstream_for(parts.settings.downstreams, who.tenant, wanted)
    if downstream is None:
        raise HttpProblem(400, f"there is no downstream {wanted[:64]} for this tenant")
    if parts.settings.tes_containers == "refuse" and not downstream:
        raise HttpProblem(403, "this domain accepts no tasks; an administrator can set tes_containers")
    if len(task.tags) > MAX_TAGS:
        raise HttpProblem(400, f"a task can have at most {MAX_TAGS} tags")
    if not downstream and (wrong := wrong_urls(task, who.tenant, parts.staging, parts.elements)):
        raise _problem(wrong)
    try:
        task, asked, warnings = known_parameters(task) if not downstream else (task, asked_on(task, downstream), ())
    except ParameterRefused as error:
        raise HttpProblem(400, str(error)) from error
    callback = task.tags.get(CALLBACK_TAG, "")
    if callback and parts.notify.check(callback) is None:
        asked = asked._replace(callback=callback)  # an address that may not be called is ignored, like any other tag
    key = idempotency_key or task.tags.get(KEY) or None
    made = await context.services.task_factory.create(
        task,
        tenant=who.tenant,
        owner=who.subject,
        asked=asked,
        warnings=warnings,
        key=key,
        fallback=not request.url.path.startswith(LONG),
    )
    # Asked before the answer: after it nobody is there any more in any case.
    gone = await request.is_disconnected()
    background_task = None if gone else BackgroundTask(_told, context, made, who.tenant)
    return Response(orjson.dumps({"id": made.id}), media_type="application/json", background=background_task)


async def _told(context: RequestContext, made: CreatedTask, tenant: str) -> None:
    """Report a created task, after its response was sent."""
    context.services.task_factory.told(made, tenant)


async def _task(context: RequestContext, who: Principal, task: str) -> Stored:
    """A task of the caller's tenant; other jobs are reported as missing here."""
    stored = await context.services.tasks.find(task) if len(task) <= 64 else None
    if stored is None or stored.document.tenant != who.tenant or stored.document.labels.get(MARK) != TASK:
        raise HttpProblem(404, f"there is no task {task[:64]}")
    return stored


async def read(
    request: Request, context: TheDesk, who: Viewer, task: str, view: TaskView = TaskView.MINIMAL
) -> Response:
    """One task."""
    stored = await _task(context, who, task)
    states = await context.services.tasks.states([stored])
    body = orjson.dumps(await _shown(context, stored, states[stored.document.id], view))
    mark = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers={"ETag": mark})
    return Response(body, media_type="application/json", headers={"ETag": mark})


async def _shown(context: RequestContext, stored: Stored, state: TaskState, view: TaskView) -> dict[str, Any]:
    document = stored.document
    if view is TaskView.MINIMAL:
        return {"id": document.id, "state": state.value}
    spec = (await context.specifications([document.specification])).get(document.specification)
    asked = task_of(spec) if spec is not None else None
    if spec is None or asked is None:
        raise HttpProblem(404, f"the specification of task {document.id} does not exist")
    logs = await _logs(context, document, warnings_of(spec))
    created = time_text(document.created) or ""
    return task_json(replace(asked, id=document.id, state=state, creation_time=created, logs=logs), view)


async def _logs(context: RequestContext, document: JobDocument, warnings: Sequence[str]) -> Any:
    """One entry: the deciding attempt, or the one in progress."""
    tasks, store = context.services.tasks, context.services.components.store
    completion_notes = await tasks.completion_notes(document)
    brought: Any = {}
    if document.final:
        other = outputs_job(document.id)
        stored = (await store.get([other])).get(other)
        brought = await tasks.completion_notes(stored.document) if stored is not None else {}
    log = task_log(document, warnings, completion_notes, brought)
    return (log,) if log is not None else ()


async def search(
    context: TheDesk,
    who: Viewer,
    name_prefix: Annotated[str, Query(max_length=200)] = "",
    state: TaskState | None = None,
    tag_key: Annotated[list[str] | None, Query(max_length=100)] = None,
    tag_value: Annotated[list[str] | None, Query(max_length=100)] = None,
    page_size: Annotated[int, Query(ge=1, lt=2048)] = 256,
    page_token: Annotated[str, Query(max_length=4000)] = "",
    view: TaskView = TaskView.MINIMAL,
) -> Response:
    """Tasks, the newest first; pages may be shorter than they could be, and there are more while there is a token."""
    keys, values = tag_key or [], tag_value or []
    if len(values) > len(keys):
        raise HttpProblem(400, "there are more tag values than tag keys")
    wanted = list(zip(keys, [*values, *[""] * (len(keys) - len(values))], strict=True))
    query = tasks_of(who.tenant, state, [pair for pair in wanted if pair[1] and fits(*pair)])
    shown: list[dict[str, Any]] = []
    cursor = page_token or None
    store, tasks = context.services.components.store, context.services.tasks
    for _ in range(MOST_PAGES):
        page = await store.search(query, sort="-created", limit=page_size, cursor=cursor)
        cursor = page.cursor
        jobs = [job for job in page.jobs if job.document.name.startswith(name_prefix)]
        if wanted:
            tags = await _tags(context, jobs)
            jobs = [job for job in jobs if tags_match(tags[job.document.id], wanted)]
        states = await tasks.states(jobs)
        jobs = [job for job in jobs if state is None or states[job.document.id] is state]
        shown = await asyncio.gather(*(_shown(context, job, states[job.document.id], view) for job in jobs))
        if shown or cursor is None:
            break
    body: dict[str, Any] = {"tasks": shown}
    if cursor is not None:
        body["next_page_token"] = cursor
    return Response(orjson.dumps(body), media_type="application/json")


async def _tags(context: RequestContext, jobs: Sequence[Stored]) -> dict[str, dict[str, str]]:
    specs = await context.specifications(sorted({job.document.specification for job in jobs}))
    tags: dict[str, dict[str, str]] = {}
    for job in jobs:
        spec = specs.get(job.document.specification)
        task = task_of(spec) if spec is not None else None
        tags[job.document.id] = dict(task.tags) if task is not None else {}
    return tags


async def cancel(context: TheDesk, who: Submitter, task: str) -> Response:
    """End a task; one that has ended stays as it is."""
    stored = await _task(context, who, task)
    owner = stored.document.owner
    if owner != who.subject and not who.may(Role.OPERATOR):
        raise HttpProblem(403, f"the task belongs to {owner}; only the owner or an operator may do this")
    await context.note(who, "job.cancel", task, owner=owner, why="requested through TES")
    answer = await context.services.tasks.cancel(stored, by=who.subject)
    if not isinstance(answer, WriteApplied | TransitionRefused):
        raise HttpProblem(503, "The request may have succeeded; check the task before retrying")
    return Response(b"{}", media_type="application/json")


async def service_info(context: TheDesk, who: Viewer) -> Response:
    """What this service is, and which storage it reaches."""
    settings = context.services.components.settings
    body = {
        "id": "org.forestay.tes",
        "name": "Forestay",
        "type": {"group": "org.ga4gh", "artifact": "tes", "version": TES_VERSION},
        "description": "Tasks that continue when nodes, data, networks and schedulers fail.",
        "organization": {"name": "Forestay", "url": settings.public_url},
        "version": version("forestay"),
        "documentationUrl": f"{settings.public_url}/",
        "storage": storage_of(who.tenant, settings.staging_hosts, context.services.components.elements),
        "tesResources_backend_parameters": list(PARAMETERS),
    }
    return Response(orjson.dumps(body), media_type="application/json")


def make_router(prefix: str, tag: str) -> Router:
    """The five endpoints under one of the paths where clients look for them."""
    router = Router(prefix=prefix, tags=[tag])
    add = router.add_api_route
    add("/service-info", service_info, response_model=TesServiceInfo, responses=tes_errors())
    add("/tasks", search, response_model=TesList, responses=tes_errors(), methods=["GET"])
    add(
        "/tasks",
        create,
        response_model=TesCreated,
        responses=tes_errors(408, 409, 413),
        methods=["POST"],
        openapi_extra=BODY,
    )
    add("/tasks/{task}", read, response_model=TesTask, responses=tes_errors(404, unchanged=True), methods=["GET"])
    add("/tasks/{task}:cancel", cancel, response_model=TesNothing, responses=tes_errors(404), methods=["POST"])
    return router


routers = (make_router(LONG, "tes"), make_router(SHORT, "tes-short"))
