"""The route by which other systems send events to the runs that wait for them: a webhook with a token."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response
from pydantic import Field

from forestay.apps.server.http.answers import Out, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Submitter, TheDesk, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Id, Model, PlainValue
from forestay.ports.errors import Permanent

router = Router(prefix="/v1", tags=["runs"])


class ExternalEventIn(Model):
    event: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
    key: Annotated[str, Field(max_length=200)] = ""
    data: dict[Annotated[str, Field(max_length=64)], PlainValue] = Field(default_factory=dict, max_length=100)
    """The outputs of the tasks that wait for it; at most 4 kB as JSON."""
    id: Id | None = None
    """The same in every repetition; generated if left out."""


class ExternalEventOut(Out):
    id: str
    runs: list[str]
    """The runs that waited for it; none: it is kept for the first that will wait for it, for a week."""
    repeated: bool


@router.post("/external-events", status_code=201, response_model=ExternalEventOut, responses=errors(body=True))
async def send_event(context: TheDesk, who: Submitter, body: ExternalEventIn) -> Response:
    """Send an event to all runs that wait for it now, or else to the first that will. The same id again changes nothing."""
    await context.note(who, "event.send", body.event, key=body.key, event=body.id or "")
    try:
        sent = await context.services.components.events.send(
            who.tenant, body.event, body.key, body.data, by=who.subject, id_=body.id or ""
        )
    except Permanent as error:
        raise HttpProblem(422, str(error)) from error
    return json_answer({"id": sent.id, "runs": list(sent.runs), "repeated": sent.repeated}, 201)
