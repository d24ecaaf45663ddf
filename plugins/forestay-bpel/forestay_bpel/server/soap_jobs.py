"""The SOAP interface of the job service: submit, poll and register, as far as an unmodified BPEL engine needs. Completions are reported by ``notify``."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import ValidationError

from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext
from forestay.apps.server.jobs.schemas import InputIn, JobIn, ResourcesIn, SpecificationIn, SubmitIn
from forestay.apps.server.jobs.submissions import check_producers, submissions_from
from forestay.domain.jobs.job_flow_pattern import FORGOTTEN
from forestay.ports.operations.identity import Principal
from forestay.services.jobs.callback_registry import CallbackRegistry
from forestay.services.shared.checked_writer import WriteApplied
from forestay_bpel.domain.jsdl.definition import JSDL
from forestay_bpel.domain.jsdl.job import NotRunnable, converted_job
from forestay_bpel.domain.jsdl.reading import JsdlRefused, read_definition
from forestay_bpel.domain.xml_tree import XmlElement
from forestay_bpel.formats import soap

XML = "text/xml; charset=utf-8"
SOAP_MARK = "#soap"
"""The suffix of a callback's address that requests a SOAP envelope."""


async def reply_to(body: bytes, context: RequestContext, who: Principal) -> Response:
    """One operation of the job service."""
    try:
        asked = soap.read_request(body)
        answer = await _do(context, who, asked)
    except soap.SoapRefused as error:
        return _fault(str(error), theirs=True)
    except HttpProblem as error:
        theirs = error.status_code < 500
        return _fault(error.detail, theirs=theirs, name="submissionFailed" if theirs else "unavailable")
    return Response(soap.envelope(answer), media_type=XML)


def _fault(text: str, *, theirs: bool, name: str = "") -> Response:
    return Response(soap.fault(text, theirs=theirs, name=name), 500, media_type=XML)


async def _do(context: RequestContext, who: Principal, asked: soap.SoapRequest) -> XmlElement:
    match asked.body.name:
        case "submit" | "forget":
            return await _submit(context, who, asked)
        case "poll" | "getStatus":
            document = (await context.job(_text(asked.body, "jobId"), who)).document
            last = document.last
            code = last.exit_code if last is not None else None
            return soap.job_element(
                "job", jobId=document.id, state=soap.state_shown(document.state.value), exitCode=code
            )
        case "register":
            job = _text(asked.body, "jobId")
            await context.job(job, who)
            parts = context.services.components
            url = _callback(context, asked.body)
            answer = await CallbackRegistry(parts.writer, parts.clock).register(job, url)
            if not isinstance(answer, WriteApplied):
                raise HttpProblem(503, "the registration could not be stored; send it again")
            return soap.job_element("registered", jobId=job)
    raise soap.SoapRefused(f"there is no operation {asked.body.name[:60]}")


def _inside(element: XmlElement, name: str) -> XmlElement | None:
    for child in element.elements:
        if child.name == name:
            return child
        xml_element = _inside(child, name)
        if xml_element is not None:
            return xml_element
    return None


def _text(element: XmlElement, name: str) -> str:
    xml_element = _inside(element, name)
    if xml_element is None or not xml_element.text.strip():
        raise soap.SoapRefused(f"{element.name} needs {name}")
    return xml_element.text.strip()


def _callback(context: RequestContext, element: XmlElement) -> str:
    url = _text(element, "notifyTo").removesuffix(SOAP_MARK) + SOAP_MARK
    if why := context.services.components.notify.check(url):
        raise HttpProblem(422, f"notifyTo: {why}")
    return url


async def _submit(context: RequestContext, who: Principal, asked: soap.SoapRequest) -> XmlElement:
    definition = _inside(asked.body, "JobDefinition")
    if definition is None or definition.space != JSDL:
        raise soap.SoapRefused("submit needs a JobDefinition of JSDL 1.0")
    try:
        made = converted_job(read_definition(definition))
    except (JsdlRefused, NotRunnable) as error:
        raise HttpProblem(422, str(error)) from error
    pattern = made.pattern
    need = pattern.resources
    try:
        specification = SpecificationIn(
            name=made.name,
            command=[_plain(word) for word in pattern.command],
            environment={name: _plain(word) for name, word in pattern.environment.items()},
            resources=ResourcesIn(cpus=need.cpus, memory=need.memory, disk=need.disk, wall=need.wall, nodes=need.nodes),
            inputs=[InputIn(name=name, source=_plain(source)) for name, source in pattern.inputs.items()],
            outputs=list(dict.fromkeys(pattern.outputs.values())),
            container=_plain(pattern.container),
            effects=pattern.effects.value,
        )
        callback = _callback(context, asked.body) if _inside(asked.body, "notifyTo") is not None else None
        forgotten = {FORGOTTEN: "true"} if asked.body.name == "forget" else {}
        job = JobIn(callback=callback, labels={**pattern.labels, **forgotten})
        body = SubmitIn(specification=specification, jobs=[job])
    except ValidationError as error:
        raise HttpProblem(422, f"the job cannot be run: {_first(error)}") from error
    parts = context.services.components
    submissions = await submissions_from(body, who, parts.notify, parts.staging)
    await check_producers(submissions, parts.store)
    context.know(submission.specification for submission in submissions)
    (accepted,) = await context.services.submit.submit(submissions, by=who.subject, key=asked.message or None)
    return soap.job_element("submitted", jobId=accepted.id)


def _plain(text: str) -> str:
    return text.replace("$${", "${")


def _first(error: ValidationError) -> str:
    found_error: Any = error.errors()[0]
    return f"{'.'.join(map(str, found_error['loc']))}: {found_error['msg']}"
