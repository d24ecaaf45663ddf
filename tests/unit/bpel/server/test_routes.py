"""Processes that are sent to a server: stored by their content, and hostile ones refused with nothing fetched."""

from __future__ import annotations

import socket
import time

import pytest
from tests.speed import clock_limit
from tests.unit.apps.server.running import RunningServer
from tests.unit.bpel.jobs import JOBS, POLLING, job_process
from tests.unit.bpel.test_hostile_xml import HOSTILE


async def test_a_process_is_stored_and_read(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    body = {"process": job_process(POLLING), "jobs": JOBS}
    first, again = [(await ada.post("/v1/flows/bpel", json=body)).json() for _ in range(2)]
    assert first == again
    assert first["name"] == "jobs"
    shown = (await ada.get(f"/v1/flows/{first['version']}")).json()
    assert "<repeatUntil>" in shown["text"]


@pytest.mark.parametrize("name", ["billion laughs", "external http", "deep", "wide", "long attribute", "xinclude"])
@pytest.mark.parametrize("place", ["process", "wsdls", "jobs"])
async def test_hostile_xml_is_refused(server: RunningServer, tenant: str, name: str, place: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        text = HOSTILE[name].replace("PORT", str(listener.getsockname()[1]))[:500_000]
        good = job_process(POLLING)
        body = {
            "process": text if place == "process" else good,
            "wsdls": [text] if place == "wsdls" else [],
            "jobs": {"x": text} if place == "jobs" else {},
        }
        answer = await server.person("submitter", tenant=tenant).post("/v1/flows/bpel", json=body)
        assert answer.status_code == 422, answer.text
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_a_remote_import_is_refused(server: RunningServer, tenant: str) -> None:
    text = job_process(POLLING).replace(
        "<partnerLinks>",
        '<import importType="http://schemas.xmlsoap.org/wsdl/" location="http://127.0.0.1:1/x.wsdl"/><partnerLinks>',
    )
    began = time.monotonic()
    answer = await server.person("submitter", tenant=tenant).post("/v1/flows/bpel", json={"process": text})
    assert answer.status_code == 422
    assert "nothing is downloaded" in answer.text
    assert time.monotonic() - began < clock_limit(10)
