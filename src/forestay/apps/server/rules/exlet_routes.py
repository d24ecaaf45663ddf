"""Routes for exlets by name: what the rules of all rule sets may conclude."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Response
from pydantic import Field

from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RuleAuthor, TheDesk, Viewer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model
from forestay.apps.server.jobs.job_routes import json_answer
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exlets.exlet import actions_of
from forestay.domain.exlets.exlet_plain import exlet_as_plain
from forestay.formats.jobs.job_public import time_text
from forestay.formats.rules.exlet_json import read_exlet_text, write_exlet_text
from forestay.services.rules.playbook_store import StoredPlaybook

router = Router(prefix="/v1/exlets", tags=["rules"])
Name = Annotated[str, Path(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$")]
Version = Annotated[str, Query(pattern=r"^[0-9a-f]{64}$")]


class ExletIn(Model):
    text: Annotated[str, Field(min_length=1, max_length=262_144)]
    """The exlet in YAML or JSON; its name is that of the address."""
    type: ExceptionType | None = None
    """Check it for this type of exception too; nothing: for what is wrong for every type."""


class ExletOut(Out):
    name: str
    version: str
    """The digest of its steps."""
    description: str
    steps: list[str]
    """Its actions, for people."""
    by: str
    at: Time


class ExletsOut(Out):
    exlets: list[ExletOut]


class ExletVersionOut(Out):
    version: str
    by: str
    at: Time


class ExletWholeOut(ExletOut):
    text: str
    exlet: dict[str, Any]
    versions: list[ExletVersionOut]
    """The newest first, at most 100; empty where another version than the newest was asked for."""


def _shown(kept: StoredPlaybook) -> dict[str, Any]:
    exlet = kept.exlet
    return {
        "name": exlet.name,
        "version": kept.version,
        "description": exlet.description,
        "steps": list(actions_of(exlet.steps)),
        "by": kept.by,
        "at": time_text(kept.at),
    }


def _whole(kept: StoredPlaybook) -> dict[str, Any]:
    versions = [one._asdict() | {"at": time_text(one.at)} for one in kept.versions]
    exlet = kept.exlet
    return _shown(kept) | {"text": write_exlet_text(exlet), "exlet": exlet_as_plain(exlet), "versions": versions}


@router.get("", response_model=ExletsOut, responses=errors())
async def find_exlets(context: TheDesk, who: Viewer) -> Response:
    """Every exlet that has a name."""
    found = await context.services.components.exlets.all(who.tenant)
    return json_answer({"exlets": [_shown(one) for one in found]})


@router.get("/{name}", response_model=ExletWholeOut, responses=errors(404))
async def read_exlet(context: TheDesk, who: Viewer, name: Name, version: Version | None = None) -> Response:
    """An exlet at its newest version, or at another one."""
    return json_answer(_whole(await context.services.components.exlets.get(who.tenant, name, version or "")))


@router.put("/{name}", response_model=ExletWholeOut, responses=errors(400, body=True))
async def put_exlet(context: TheDesk, who: RuleAuthor, name: Name, body: ExletIn) -> Response:
    """Check an exlet and keep it under its name: rules that decide from now on conclude it as it is here. The same content again changes nothing."""
    read = read_exlet_text(body.text, body.type)
    wrong = [{"at": f"body.text:{one.line}:{one.column}", "detail": str(one)} for one in read.problems[:100]]
    if read.exlet is not None:
        found = await context.services.components.exlets.problems(who.tenant, read.exlet, body.type)
        wrong += [{"at": f"body.text:{one.where}", "detail": one.message} for one in found]
        if read.exlet.name != name:
            wrong.append(
                {"at": "body.text:name", "detail": f"the text has the name {read.exlet.name}, the address {name}"}
            )
    if read.exlet is None or wrong:
        raise HttpProblem(422, f"the exlet has {len(wrong)} error(s)", wrong)
    await context.note(who, "exlet.put", name, why=read.exlet.description)
    return json_answer(_whole(await context.services.components.exlets.put(who.tenant, read.exlet, by=who.subject)))
