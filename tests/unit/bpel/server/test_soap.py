"""The SOAP face of the job service, with envelopes as any conforming engine sends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from tests.unit.apps.server.asks import read
from tests.unit.apps.server.running import RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot
from tests.unit.bpel.jobs import REGISTERED, definition, job_process

from forestay_bpel.domain.xml_tree import XmlElement
from forestay_bpel.formats.bpel import read_bpel
from forestay_bpel.formats.xml_text import read_xml

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"


def envelope(body: str, header: str = "") -> str:
    return f'<s:Envelope xmlns:s="{SOAP}" xmlns:j="urn:forestay:jobs" xmlns:a="http://www.w3.org/2005/08/addressing"><s:Header>{header}</s:Header><s:Body>{body}</s:Body></s:Envelope>'


async def call(person: httpx.AsyncClient, body: str, *, header: str = "", status: int = 200) -> XmlElement:
    if status == 500:  # SOAP 1.1 wants its faults so; no answer that the interface's description knows
        person.event_hooks = {"response": []}
    headers = {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": '""'}
    answer = await person.post("/soap/jobs", content=envelope(body, header), headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/xml; charset=utf-8"
    return read_xml(answer.content).elements[0].elements[0]


def value(element: XmlElement, name: str) -> str:
    return next(xml_element.text for xml_element in element.elements if xml_element.name == name)


@dataclass
class Engine:
    """Where an engine is told of ends."""

    port: int = 0
    received: list[tuple[str, XmlElement]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/ode/processes/listener"


@asynccontextmanager
async def engine() -> AsyncIterator[Engine]:
    here = Engine()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        here.received.append((head, read_xml(await reader.readexactly(size))))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    here.port = server.sockets[0].getsockname()[1]
    async with server:
        yield here


async def test_submit_poll_register_and_be_told(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    async with engine() as there, server.domain.reconciler() as reconciler:
        job = value(await call(ada, f"<j:submit>{definition('fit', 'true')}</j:submit>"), "jobId")
        shown = await read(ada, job)
        assert (shown["name"], shown["state"], shown["patterns"]) == ("fit", "available", ["polling"])
        polled = await call(ada, f"<j:poll><j:jobId>{job}</j:jobId></j:poll>")
        assert (polled.name, value(polled, "state")) == ("job", "running")
        asked = f"<j:register><j:jobId>{job}</j:jobId><j:notifyTo><a:Address>{there.address}</a:Address></j:notifyTo></j:register>"
        assert (await call(ada, asked)).name == "registered"
        assert (await read(ada, job))["patterns"] == ["notification"]
        pilot = await ScriptedPilot.register(server, tenant)
        assert await pilot.end(await pilot.claim_one()) == ["committed"]
        await server.refresh()
        await reconciler.callbacks.send_due()
        ((head, element),) = there.received
        assert head.startswith("post /ode/processes/listener http/1.1")
        assert 'soapaction: "notify"' in head
        notify = element.elements[0].elements[0]
        assert (notify.name, value(notify, "jobId"), value(notify, "state")) == ("notify", job, "completed")
        polled = await call(ada, f"<j:poll><j:jobId>{job}</j:jobId></j:poll>")
        assert value(polled, "state") == "completed"


async def test_a_job_of_several_nodes_asks_for_as_many(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    nodes = "<d:Resources><d:TotalResourceCount><d:Exact>3</d:Exact></d:TotalResourceCount></d:Resources>"
    job = value(await call(ada, f"<j:submit>{definition('wide', 'true', more=nodes)}</j:submit>"), "jobId")
    assert (await read(ada, job))["resources"]["nodes"] == 3


async def test_a_job_that_is_forgotten_is_unattended(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = value(await call(ada, f"<j:forget>{definition('tidy', 'false')}</j:forget>"), "jobId")
    assert (await read(ada, job))["patterns"] == ["fire-and-forget"]
    async with server.domain.reconciler() as reconciler:
        pilot = await ScriptedPilot.register(server, tenant)
        await pilot.end(await pilot.claim_one(), outcome="failure", exit_code=3)
        await server.refresh()
        await reconciler.forgotten.look()
    alerts = (await ada.get("/v1/alerts")).json()["alerts"]
    assert [alert["job"] for alert in alerts if alert["alert"] == "forgotten-job-failed"] == [job]


async def test_one_who_registers_late_is_told_at_once(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    async with engine() as there, server.domain.reconciler() as reconciler:
        job = value(await call(ada, f"<j:submit>{definition('fit', 'true')}</j:submit>"), "jobId")
        pilot = await ScriptedPilot.register(server, tenant)
        await pilot.end(await pilot.claim_one(), outcome="failure", exit_code=3)
        await call(ada, f"<j:register><j:jobId>{job}</j:jobId><j:notifyTo>{there.address}</j:notifyTo></j:register>")
        await server.refresh()
        await reconciler.callbacks.send_due()
        ((_, element),) = there.received
        assert value(element.elements[0].elements[0], "state") == "failed"


async def test_the_same_message_submits_once(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    header = "<a:MessageID>urn:uuid:1</a:MessageID>"
    body = f"<j:submit>{definition('fit', 'true')}</j:submit>"
    first, again = [value(await call(ada, body, header=header), "jobId") for _ in range(2)]
    assert first == again


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("<j:submit/>", "JobDefinition"),
        (f"<j:submit>{definition('x', '')}</j:submit>", "executable"),
        ("<j:poll><j:jobId>none</j:jobId></j:poll>", "there is no job none"),
        ("<j:poll/>", "needs jobId"),
        ("<j:other/>", "there is no operation other"),
        ("<j:submit/><j:submit/>", "one element"),
        ("</s:Body><!DOCTYPE a><s:Body>", "invalid XML"),
        (
            f"<j:submit><j:notifyTo>http://elsewhere.example/</j:notifyTo>{definition('x', 'true')}</j:submit>",
            "notifyTo",
        ),
    ],
)
async def test_what_is_wrong_is_a_fault(server: RunningServer, tenant: str, body: str, words: str) -> None:
    fault = await call(server.person("submitter", tenant=tenant), body, status=500)
    assert fault.name == "Fault"
    assert value(fault, "faultcode") == "soap:Client"
    assert words in value(fault, "faultstring")


async def test_the_wsdl_has_what_is_answered() -> None:
    """The description that engines import: its operations are those that are answered, and a process that uses it is imported whole."""
    text = (Path(__file__).parents[4] / "docs/reference/job-service.wsdl").read_bytes()
    wsdl = read_xml(text)
    ports = {
        element.get("name"): {inner.get("name") for inner in element.elements}
        for element in wsdl.elements
        if element.name == "portType"
    }
    assert ports == {"JobService": {"submit", "poll", "register"}, "JobListener": {"notify"}}
    read_ = read_bpel(job_process(REGISTERED), wsdls=[text])
    assert read_.report.fate == "imported"
    assert read_.flow is not None
    assert len(read_.flow.process().aliases) == 2
