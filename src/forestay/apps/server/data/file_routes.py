"""Routes of the catalogue: where a file is, and what is known about its replicas."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response

from forestay.apps.server.data.file_answers import FileOut, FilesOut
from forestay.apps.server.data.schemas import MarkIn, ReplicaIn, ReplicaOutIn
from forestay.apps.server.http.answers import errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Operator, RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.domain.data.replica import LogicalFile, Replica, Viewpoint
from forestay.domain.data.storage_element import StorageElement, wrong_path
from forestay.domain.jobs.inputs import catalogue_name, produced, wrong_name
from forestay.formats.jobs.job_public import time_text
from forestay.ports.errors import Conflict

router = Router(prefix="/v1/files", tags=["files"])
Json = dict[str, Any]
Name = Annotated[str, Query(min_length=1, max_length=1200)]


@router.get("", response_model=FilesOut, responses=errors())
async def find(
    context: TheDesk,
    who: Viewer,
    name: Annotated[str, Query(max_length=500)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Files with a document in the catalogue, by a part of their names."""
    listing = await context.services.components.catalogue.find(who.tenant, name, limit)
    return json_answer({"files": [_public(context, file) for file in listing.files], "more": listing.more})


@router.get("/where", response_model=FileOut, responses=errors(404))
async def where(
    context: TheDesk, who: Viewer, name: Name, site: Annotated[str, Query(max_length=200)] = ""
) -> Response:
    """Where a file is: its replicas in the order in which a pilot of a site would try them."""
    _check_name(name)
    view = Viewpoint(who.tenant, site)
    file = (await context.services.components.catalogue.locate([name], view))[name]
    if not file.replicas:
        raise HttpProblem(404, f"no storage element has {name[:200]}")
    return json_answer(_public(context, file))


@router.post("/replicas", response_model=FileOut, responses=errors(409, body=True))
async def add(context: TheDesk, who: Operator, body: ReplicaIn) -> Response:
    """Register a replica of a file on an element."""
    element, path = _place(context, who.tenant, body.name, body.element, body.path)
    await context.note(who, "file.add", body.name, why=body.reason, element=body.element, path=path)
    replica = Replica(element.name, path, since=context.services.components.clock.now())
    try:
        await context.services.components.catalogue.add(
            who.tenant, body.name, replica, size=body.bytes, sha256=body.sha256
        )
    except Conflict as error:
        raise HttpProblem(409, str(error)) from error
    return json_answer(await _seen(context, who.tenant, body.name))


@router.post("/replicas/remove", response_model=FileOut, responses=errors(404, body=True))
async def remove(context: TheDesk, who: Operator, body: ReplicaOutIn) -> Response:
    """Remove replicas on an element from the catalogue. The files on the element stay."""
    _check_name(body.name)
    await context.note(who, "file.remove", body.name, why=body.reason, element=body.element)
    left = await context.services.components.catalogue.remove(who.tenant, body.name, body.element, body.path)
    if left is None:
        raise HttpProblem(
            404,
            f"no replica of {body.name[:200]} was added for {body.element}; replicas from path rules cannot be removed",
        )
    return json_answer(await _seen(context, who.tenant, body.name))


@router.post("/replicas/mark", response_model=FileOut, responses=errors(404, body=True))
async def mark(context: TheDesk, who: Operator, body: MarkIn) -> Response:
    """Mark a replica as bad, so that it is tried last for an hour, or as good again."""
    _check_name(body.name)
    catalogue = context.services.components.catalogue
    known = (await catalogue.locate([body.name], Viewpoint(who.tenant)))[body.name]
    places = [
        replica for replica in known.replicas if replica.element == body.element and body.path in (None, replica.path)
    ]
    if not places:
        raise HttpProblem(404, f"no replica of {body.name[:200]} is known on {body.element}")
    await context.note(who, "file.mark", body.name, why=body.reason, element=body.element, bad=body.bad)
    for place in places:
        await catalogue.mark(who.tenant, body.name, place.element, place.path, bad=body.bad, why=body.reason)
    return json_answer(await _seen(context, who.tenant, body.name))


async def _seen(context: RequestContext, tenant: str, name: str) -> Json:
    files = await context.services.components.catalogue.locate([name], Viewpoint(tenant))
    return _public(context, files[name])


def _check_name(name: str) -> None:
    other = produced(name)
    if catalogue_name(name) is None and (other is None or wrong_name(other.path)):
        raise HttpProblem(422, "a file is named lfn:NAME, or job:ID/PATH for an output of a job")


def _place(
    context: RequestContext, tenant: str, name: str, element: str, path: str | None
) -> tuple[StorageElement, str]:
    """The requested place, if the tenant may read anything there."""
    _check_name(name)
    known = context.services.components.elements.elements.get(element)
    if known is None or not known.serves(tenant):
        raise HttpProblem(
            422, f"there is no storage element {element}", [{"at": "body.element", "detail": "not known"}]
        )
    plain = catalogue_name(name)
    path_data = path if path is not None else (known.path_of(plain) if plain is not None else None)
    if path_data is None:
        raise HttpProblem(422, f"no path rule of {element} matches; give the path")
    if why := wrong_path(path_data):
        raise HttpProblem(422, why, [{"at": "body.path", "detail": why}])
    if not known.may_read(tenant, path_data):
        raise HttpProblem(422, "the path belongs to the outputs of another tenant")
    return known, path_data


def _public(context: RequestContext, file: LogicalFile) -> Json:
    now = context.services.components.clock.now()
    return {
        "name": file.name,
        "bytes": file.size,
        "sha256": file.sha256,
        "replicas": [
            {
                "element": replica.element,
                "path": replica.path,
                "since": time_text(replica.since),
                "bad": replica.bad(now),
                "bad_since": time_text(replica.bad_since),
                "why": replica.why_bad,
            }
            for replica in file.replicas
        ],
    }
