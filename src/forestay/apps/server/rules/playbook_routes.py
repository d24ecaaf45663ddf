"""Routes for playbooks by name: what the rules of all rule sets may start."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query, Response
from pydantic import Field

from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RuleAuthor, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.playbooks.playbook import actions_of, playbook_as_plain
from forestay.formats.jobs.job_public import time_text
from forestay.formats.rules.playbook_json import read_playbook_text, write_playbook_text
from forestay.services.rules.playbook_store import StoredPlaybook

router = Router(prefix="/v1/playbooks", tags=["rules"])
Name = Annotated[str, Path(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$")]
Version = Annotated[str, Query(pattern=r"^[0-9a-f]{64}$")]


class PlaybookIn(Model):
    text: Annotated[str, Field(min_length=1, max_length=262_144)]
    """The playbook in YAML or JSON; its name is that of the address."""
    type: ExceptionType | None = None
    """Check it for this exception type too; default: only for errors that apply to every type."""


class PlaybookOut(Out):
    name: str
    version: str
    """The digest of its steps."""
    description: str
    steps: list[str]
    """Its actions, for people."""
    by: str
    at: Time


class PlaybooksOut(Out):
    playbooks: list[PlaybookOut]


class PlaybookVersionOut(Out):
    version: str
    by: str
    at: Time


class PlaybookDetailsOut(PlaybookOut):
    text: str
    playbook: dict[str, Any]
    versions: list[PlaybookVersionOut]
    """The newest first, at most 100; empty if another version than the newest was requested."""


def _shown(kept: StoredPlaybook) -> dict[str, Any]:
    playbook = kept.playbook
    return {
        "name": playbook.name,
        "version": kept.version,
        "description": playbook.description,
        "steps": list(actions_of(playbook.steps)),
        "by": kept.by,
        "at": time_text(kept.at),
    }


def _whole(kept: StoredPlaybook) -> dict[str, Any]:
    versions = [version._asdict() | {"at": time_text(version.at)} for version in kept.versions]
    playbook = kept.playbook
    return _shown(kept) | {
        "text": write_playbook_text(playbook),
        "playbook": playbook_as_plain(playbook),
        "versions": versions,
    }


@router.get("", response_model=PlaybooksOut, responses=errors())
async def find_playbooks(context: TheDesk, who: Viewer) -> Response:
    """Every playbook that has a name."""
    playbooks = await context.services.components.playbooks.all(who.tenant)
    return json_answer({"playbooks": [_shown(playbook) for playbook in playbooks]})


@router.get("/{name}", response_model=PlaybookDetailsOut, responses=errors(404))
async def read_playbook(context: TheDesk, who: Viewer, name: Name, version: Version | None = None) -> Response:
    """A playbook at its newest version, or at another one."""
    return json_answer(_whole(await context.services.components.playbooks.get(who.tenant, name, version or "")))


@router.put("/{name}", response_model=PlaybookDetailsOut, responses=errors(400, body=True))
async def put_playbook(context: TheDesk, who: RuleAuthor, name: Name, body: PlaybookIn) -> Response:
    """Check a playbook and store it under its name: decisions from now on use this version. The same content again changes nothing."""
    read = read_playbook_text(body.text, body.type)
    wrong = [
        {"at": f"body.text:{problem.line}:{problem.column}", "detail": str(problem)} for problem in read.problems[:100]
    ]
    if read.playbook is not None:
        problems = await context.services.components.playbooks.problems(who.tenant, read.playbook, body.type)
        wrong += [{"at": f"body.text:{problem.where}", "detail": problem.message} for problem in problems]
        if read.playbook.name != name:
            wrong.append(
                {"at": "body.text:name", "detail": f"the text has the name {read.playbook.name}, the address {name}"}
            )
    if read.playbook is None or wrong:
        raise HttpProblem(422, f"the playbook has {len(wrong)} error(s)", wrong)
    await context.note(who, "playbook.put", name, why=read.playbook.description)
    return json_answer(
        _whole(await context.services.components.playbooks.put(who.tenant, read.playbook, by=who.subject))
    )
