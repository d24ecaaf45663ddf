"""Processes in WS-BPEL as cases on a real Temporal and a real store: their invokes are jobs, by each of the patterns of submission."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.live.case_site import BAD, GOOD, TENANT, CaseSite, case_site
from tests.unit.apps.server.running import until
from tests.unit.bpel.jobs import JOBS, POLLING, REGISTERED, definition, job_process

from forestay.domain.flows.events import VerbKind
from forestay.formats.bpel import message_plain, read_bpel
from forestay.ports.flows.flow_engine import CaseStart

pytestmark = pytest.mark.live


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[CaseSite]:
    async with case_site("sqlite", tmp_path) as site:
        yield site


async def start(site: CaseSite, text: str, *, mapping: str = "", **message: str) -> str:
    read = read_bpel(text, jobs=JOBS, mapping=mapping)
    assert read.flow is not None, (read.other, [str(one) for one in read.report.entries if one.fate == "refused"])
    version = await site.server.services.components.flows.put_bpel(read.flow, tenant=TENANT)
    case = str(uuid4())
    given: dict[str, Any] = {"message": message_plain(message)}
    assert await site.engine.start(CaseStart(case, TENANT, "ada", version, read.flow.name, read.flow.as_plain(), given))
    return case


def invoke(operation: str, name: str, job: str = "") -> str:
    given = f'<assign><copy><from>"{job}"</from><to>$ask.body</to></copy></assign>' if job else ""
    return f'{given}<invoke name="{name}" partnerLink="jobs" operation="{operation}" inputVariable="ask" outputVariable="got"/>'


async def test_a_job_is_run_and_its_end_is_the_answer(site: CaseSite) -> None:
    case = await start(site, job_process(invoke("run", "a", "first") + invoke("run", "b", "second")))
    end = await site.result(case)
    assert end == {"outcome": "completed", "outputs": {"start": {"body": "completed"}}, "reason": ""}
    assert site.ran == ["a", "b"]


async def test_a_definition_in_the_message_is_run(site: CaseSite) -> None:
    text = f"<assign><copy><from><literal>{definition('inline', 'true')}</literal></from><to>$ask.body</to></copy></assign>"
    case = await start(site, job_process(text + invoke("run", "a")))
    assert (await site.result(case))["outcome"] == "completed"
    assert site.ran == ["a"]


async def test_a_failed_job_is_a_fault_that_can_be_caught(site: CaseSite) -> None:
    site.fate = lambda claim: BAD if claim["name"] == "a" else GOOD
    handler = f'<catch faultName="j:jobFailed" faultVariable="f" faultMessageType="t:m">{invoke("run", "b", "second")}</catch>'
    body = f"<scope><faultHandlers>{handler.replace('</catch>', '</catch>')}</faultHandlers>{invoke('run', 'a', 'first')}</scope>"
    body = body.replace(handler, handler.replace('t:m">', 't:m"><sequence>').replace("</catch>", "</sequence></catch>"))
    body = body.replace("</faultHandlers>", "</faultHandlers><sequence>").replace("</scope>", "</sequence></scope>")
    case = await start(site, job_process(body))
    assert (await site.result(case))["outcome"] == "completed"
    assert site.ran == ["a", "b"]


async def test_nobody_catches_and_the_line_is_said(site: CaseSite) -> None:
    site.fate = lambda _claim: BAD
    case = await start(site, job_process(invoke("run", "a", "first")))
    end = await site.result(case)
    assert end["outcome"] == "failed"
    assert end["reason"].startswith("jobs, line 8: jobFailed")


async def test_submit_and_poll(site: CaseSite) -> None:
    case = await start(site, job_process(POLLING))
    end = await site.result(case)
    assert end["outputs"] == {"start": {"body": "completed"}}
    assert site.ran == ["a"]


async def test_submit_and_be_told(site: CaseSite) -> None:
    case = await start(site, job_process(REGISTERED))
    assert (await site.result(case))["outputs"] == {"start": {"body": "completed"}}
    assert site.ran == ["a"]


async def test_fire_and_forget(site: CaseSite) -> None:
    site.fate = lambda _claim: BAD
    case = await start(site, job_process(invoke("forget", "a", "first"), state="'sent'"))
    assert (await site.result(case))["outputs"] == {"start": {"body": "sent"}}


async def test_what_is_given_up_is_cancelled(site: CaseSite) -> None:
    site.hold_back = lambda claim: claim["name"] == "a"
    body = f"""<scope><faultHandlers><catchAll><empty/></catchAll></faultHandlers><flow><sequence>{invoke("run", "a", "first")}</sequence>
    <sequence>{invoke("run", "b", "second").replace("$ask", "$ask2").replace('"ask"', '"ask2"')}<throw faultName="t:enough"/></sequence></flow></scope>"""
    case = await start(site, job_process(body, state="'given up'"))
    await site.item_is(case, "a", "cancelled")
    assert (await site.result(case))["outputs"] == {"start": {"body": "given up"}}


async def test_a_person_answers(site: CaseSite) -> None:
    case = await start(site, job_process(invoke("approve", "ask")), mapping="partners: {jobs: {approve: manual}}")

    async def tell() -> bool:
        await site.engine.send_message(case, {"partner": "jobs", "operation": "approve", "message": message_plain({"body": "<j:job xmlns:j='urn:forestay:jobs'><j:state>fine</j:state></j:job>"})})  # fmt: skip
        return True

    await until(tell, "the case to hear")
    assert (await site.result(case))["outputs"] == {"start": {"body": "fine"}}


async def test_a_case_that_is_removed_leaves_nothing(site: CaseSite) -> None:
    site.hold_back = lambda _claim: True
    case = await start(site, job_process(invoke("run", "a", "first")))
    await site.item_is(case, "a", "running")
    assert (await site.verb(case, VerbKind.REMOVE)).accepted
    assert (await site.ended(case)).state == "removed"
