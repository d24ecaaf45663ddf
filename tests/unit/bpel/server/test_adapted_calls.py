"""A process that was adapted, in an engine that knows nothing of Forestay: it sends SOAP to wherever a partner link points, and so its calls reach the proxy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.running import RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot
from tests.unit.bpel.jobs import POLLING, definition, job_process
from tests.unit.bpel.server.test_soap import envelope
from tests.unit.bpel.simulated import part, process_of

from forestay_bpel.domain.bpel.adapting import PROXY
from forestay_bpel.formats.bpel import adapt_text
from forestay_bpel.formats.xml_text import read_xml
from forestay_bpel.interpreter.host import Fault, Incoming, Message, PartnerCall
from forestay_bpel.interpreter.interpreter import Interpreter, ProcessResult

XML = {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": '""'}


@dataclass
class PlainEngine:
    """The outside of a process as SOAP and nothing else."""

    direct: str
    """The job service that the process was written for."""
    client: httpx.AsyncClient
    sent: list[tuple[str, str]] = field(default_factory=list)
    """Operation and address of each call."""
    replies: list[str] = field(default_factory=list)

    async def invoke(self, call: PartnerCall) -> Message:
        text = call.message["body"].text.strip()
        inner = definition(text, "true") if call.operation == "submit" else f"<j:jobId>{text}</j:jobId>"
        address = call.address or self.direct
        self.sent.append((call.operation, address))
        body = envelope(f"<j:{call.operation}>{inner}</j:{call.operation}>")
        answer = await self.client.post(address, content=body, headers=XML)
        element = read_xml(answer.content).elements[-1].elements[0]
        if answer.status_code == 500:
            raise Fault(f"{{{PROXY}}}unavailable", why=element.text)
        return {"body": element}

    async def reply(self, partner: str, operation: str, message: Message, fault: str) -> None:
        self.replies.append(message["body"].text)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> float:
        return time.time()

    def trace(self, event: str) -> None:
        pass


@dataclass
class DirectService:
    """A job service of somebody else: its jobs have completed at once."""

    address: str = ""
    calls: int = 0


@asynccontextmanager
async def answering(status: int, body: str) -> AsyncIterator[DirectService]:
    here = DirectService()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
        here.calls += 1
        data = envelope(body).encode()
        writer.write(b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    here.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/jobs"
    async with server:
        yield here


def theirs(state: str = "completed") -> str:
    return f"<j:job><j:jobId>theirs</j:jobId><j:state>{state}</j:state></j:job>"


async def run(text: str, engine: PlainEngine) -> ProcessResult:
    interpreter = Interpreter(process_of(text), engine)
    interpreter.deliver(Incoming("me", "start", part("go", "body")))
    return await interpreter.run()


@asynccontextmanager
async def carried_out(server: RunningServer, tenant: str) -> AsyncIterator[None]:
    pilot = await ScriptedPilot.register(server, tenant)

    async def work() -> None:
        while True:
            await pilot.end(*await pilot.claim(most=4, wait=1))

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


ORIGINAL = job_process(POLLING, name="adapted")


@pytest.mark.ledger("P0-21", "P0-22")
async def test_the_calls_of_an_adapted_process_reach_the_proxy(local: RunningServer, tenant: str) -> None:
    ada = local.person("submitter", "viewer", tenant=tenant)
    proxy = f"{local.url}/soap/jobs"
    token = local.domain.token("submitter", "viewer", tenant=tenant)
    async with answering(200, theirs()) as direct, http_client(local.url, token) as client:
        plain = PlainEngine(direct.address, client)
        assert (await run(ORIGINAL, plain)).how == "completed"
        assert plain.replies == ["completed"]
        assert {address for _, address in plain.sent} == {direct.address}
        before = direct.calls
        assert before == len(plain.sent) > 1

        adapted = adapt_text(ORIGINAL, address=proxy)
        assert adapted.count == 2
        through = PlainEngine(direct.address, client)
        async with carried_out(local, tenant):
            ended = await run(adapted.text, through)
        assert (ended.how, through.replies) == ("completed", plain.replies), ended.fault
        assert {address for _, address in through.sent} == {proxy}
        assert direct.calls == before, "nobody goes past the proxy"
    jobs = (await ada.get("/v1/jobs")).json()["jobs"]
    assert [(job["name"], job["state"]) for job in jobs] == [("first", "completed")]


@pytest.mark.ledger("P0-21")
async def test_without_a_proxy_the_original_calls_are_made() -> None:
    unavailable = "<s:Fault><faultcode>s:Server</faultcode><faultstring>later</faultstring></s:Fault>"
    async with (
        http_client("http://127.0.0.1", "") as client,
        answering(500, unavailable) as proxy,
        answering(200, theirs("failed")) as direct,
    ):
        engine = PlainEngine(direct.address, client)
        ended = await run(adapt_text(ORIGINAL, address=proxy.address).text, engine)
        assert (ended.how, engine.replies) == ("completed", ["failed"]), ended.fault
        operations = [operation for operation, address in engine.sent if address == proxy.address]
        assert operations == [operation for operation, address in engine.sent if address == direct.address]
        assert proxy.calls == direct.calls == len(operations)
