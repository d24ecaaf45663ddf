"""Routes for processes in WS-BPEL and for engines that speak SOAP. A server loads them when it starts; the readers are imported when a document comes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request, Response
from pydantic import Field, JsonValue

from forestay.apps.server.flows.flow_routes import FlowOut, engine_of
from forestay.apps.server.flows.run_routes import is_ours, run_of_tenant
from forestay.apps.server.http.answers import Out, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Submitter, TheDesk, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model
from forestay.formats.text.yaml_text import MAX_BYTES
from forestay.ports.operations.identity import Role

router = Router(prefix="/v1", tags=["runs"])
soap_router = Router(tags=["soap"])


class BpelIn(Model):
    process: Annotated[str, Field(min_length=1, max_length=MAX_BYTES)]
    """The process in WS-BPEL 2.0."""
    wsdls: Annotated[list[Annotated[str, Field(max_length=MAX_BYTES)]], Field(max_length=20)] = Field(
        default_factory=list
    )
    """WSDL documents, for where properties are in messages. Nothing is fetched."""
    jobs: dict[Annotated[str, Field(max_length=200)], Annotated[str, Field(max_length=MAX_BYTES)]] = Field(
        default_factory=dict, max_length=200
    )
    """Job definitions in JSDL 1.0 by a name."""
    mapping: Annotated[str, Field(max_length=MAX_BYTES)] = ""
    """Who the partners are, in YAML."""


class RunMessageIn(Model):
    partner: Annotated[str, Field(min_length=1, max_length=200)]
    """The partner link."""
    operation: Annotated[str, Field(min_length=1, max_length=200)]
    message: dict[Annotated[str, Field(max_length=200)], Annotated[str, Field(max_length=16_384)] | list[JsonValue]] = (
        Field(default_factory=dict, max_length=20)
    )
    """The parts: each a text, or an element in its plain form."""


class RunMessageOut(Out):
    sent: bool


@router.post("/flows/bpel", status_code=201, response_model=FlowOut, responses=errors(body=True))
async def store_bpel(context: TheDesk, who: Submitter, body: BpelIn) -> Response:
    """Check a process in WS-BPEL 2.0 with its job definitions, and store it; the answer is its version, the hash of all of it."""
    from forestay_bpel.formats.bpel import ImportStatus, read_bpel

    read = read_bpel(body.process, wsdls=body.wsdls, jobs=body.jobs, mapping=body.mapping)
    if read.flow is None:
        refused = read.report.of(ImportStatus.REFUSED)
        wrong = [{"at": f"body.process:{entry.line}", "detail": str(entry)} for entry in refused[:100]]
        wrong += [{"at": "body", "detail": detail} for detail in read.other[:100]]
        raise HttpProblem(422, f"the process has {len(wrong)} error(s)", wrong)
    version = await context.services.components.flows.put_grown(read.flow, tenant=who.tenant)
    return json_answer({"version": version, "name": read.flow.name}, 201)


@router.post("/runs/{run}/messages", response_model=RunMessageOut, responses=errors(404, 409, body=True))
async def send_message(context: TheDesk, who: Submitter, run: str, body: RunMessageIn) -> Response:
    """Give the process of a run a message: one that it waits for, or the answer of a person whom it has asked."""
    from forestay_bpel.domain.bpel_flow import message_from_plain

    summary = await run_of_tenant(context, run, who)
    if summary.owner != who.subject and not who.may(Role.OPERATOR):
        raise HttpProblem(403, f"the run belongs to {summary.owner}; only the owner or an operator may do this")
    if not is_ours(summary) or summary.ended is not None:
        raise HttpProblem(409, "the run has ended, or it is not a BPEL process")
    try:
        message_from_plain(body.message)
    except ValueError as error:
        raise HttpProblem(422, f"message: {error}") from error
    await context.note(who, "run.message", run, partner=body.partner, operation=body.operation)
    await engine_of(context).send_message(run, body.model_dump())
    return json_answer({"sent": True})


@soap_router.post("/soap/jobs", include_in_schema=False, responses=errors(body=True))
async def soap_jobs(request: Request, context: TheDesk, who: Submitter) -> Response:
    """One operation of the job service, which docs/reference/job-service.wsdl describes."""
    from forestay_bpel.server.soap_jobs import reply_to

    return await reply_to(await request.body(), context, who)
