"""The conversation about a job that is carried to task servers: what its client sees, and each attempt's task there."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from forestay.apps.server.http.answers import NothingOut, errors
from forestay.apps.server.http.request_context import Hinter, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.insertion.conversation_answers import ConversationOut
from forestay.apps.server.insertion.schemas import ToldIn
from forestay.domain.jobs.conversation import KIND, exchange_from
from forestay.domain.jobs.job_document import downstream_of

router = Router(prefix="/v1/jobs", tags=["jobs"])
downstream_router = Router(prefix="/v1/downstreams", tags=["jobs"])
MOST = 200


@router.get("/{job}/conversation", response_model=ConversationOut, responses=errors(404))
async def conversation(context: TheDesk, who: Viewer, job: str) -> Response:
    """The task and the server for each attempt of a job, the oldest first."""
    document = (await context.job(job, who)).document
    store = context.services.components.store
    await store.refresh()
    records = await store.find_records(kind=KIND, job=document.id, tenant=who.tenant, limit=MOST)
    exchanges = sorted(
        (exchange_from(document.id, record.body) for record in records), key=lambda exchange: exchange.token
    )
    delivery = document.delivery
    return json_answer(
        {
            "job": document.id,
            "downstream": downstream_of(document),
            "state": document.state.value,
            "attempt": document.attempt,
            "exchanges": [exchange.as_plain() for exchange in exchanges],
            "callback": {"url": delivery.url, "told": delivery.done} if delivery is not None else None,
        }
    )


@downstream_router.post("/{name}/told", response_model=NothingOut, responses=errors(body=True))
async def told(
    context: TheDesk,
    who: Hinter,
    name: str,
    body: ToldIn,
    capability: Annotated[str, Query(max_length=4096)] = "",
) -> Response:
    """A downstream server reports that a task has ended: it is polled now. The address may carry a capability for that task instead of a token."""
    for relay in context.services.relays.relays:
        if relay.name == name and relay.tenant == who.tenant:
            relay.hint(body.job, only_of=who.job)
    return json_answer({})
