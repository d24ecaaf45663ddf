"""Processes in WS-BPEL as runs on a real Temporal and a real store: their invokes are jobs, by each of the patterns of submission."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.live.run_site import BAD, GOOD, TENANT, RunSite, run_site
from tests.unit.apps.server.running import until
from tests.unit.bpel.jobs import JOBS, POLLING, REGISTERED, definition, job_process

from forestay.domain.flows.events import VerbKind
from forestay.ports.flows.flow_engine import RunStart
from forestay_bpel.formats.bpel import message_plain, read_bpel

pytestmark = pytest.mark.live


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[RunSite]:
    async with run_site("sqlite", tmp_path) as site:
        yield site


async def start(site: RunSite, text: str, *, mapping: str = "", **message: str) -> str:
    read = read_bpel(text, jobs=JOBS, mapping=mapping)
    assert read.flow is not None, (read.other, [str(entry) for entry in read.report.entries if entry.fate == "refused"])
    version = await site.server.services.components.flows.put_grown(read.flow, tenant=TENANT)
    run = str(uuid4())
    params: dict[str, Any] = {"message": message_plain(message)}
    assert await site.engine.start(RunStart(run, TENANT, "ada", version, read.flow.name, read.flow.as_plain(), params))
    return run


def invoke(operation: str, name: str, job: str = "") -> str:
    text = f'<assign><copy><from>"{job}"</from><to>$ask.body</to></copy></assign>' if job else ""
    return f'{text}<invoke name="{name}" partnerLink="jobs" operation="{operation}" inputVariable="ask" outputVariable="got"/>'


async def patterns(site: RunSite, run: str) -> set[str]:
    """The patterns of submission of a run's jobs."""
    await site.server.refresh()
    person = site.server.person("viewer", tenant=TENANT)
    return {job["patterns"][0] for job in (await person.get("/v1/jobs", params={"run": run})).json()["jobs"]}


async def test_a_job_is_run_and_its_end_is_the_answer(site: RunSite) -> None:
    run = await start(site, job_process(invoke("run", "a", "first") + invoke("run", "b", "second")))
    end = await site.result(run)
    assert end == {"outcome": "completed", "outputs": {"start": {"body": "completed"}}, "reason": ""}
    assert site.ran == ["a", "b"]
    assert await patterns(site, run) == {"synchronous"}


async def test_a_definition_in_the_message_is_run(site: RunSite) -> None:
    text = f"<assign><copy><from><literal>{definition('inline', 'true')}</literal></from><to>$ask.body</to></copy></assign>"
    run = await start(site, job_process(text + invoke("run", "a")))
    assert (await site.result(run))["outcome"] == "completed"
    assert site.ran == ["a"]


async def test_a_failed_job_is_a_fault_that_can_be_caught(site: RunSite) -> None:
    site.fate = lambda claim: BAD if claim["name"] == "a" else GOOD
    handler = f'<catch faultName="j:jobFailed" faultVariable="f" faultMessageType="t:m">{invoke("run", "b", "second")}</catch>'
    body = f"<scope><faultHandlers>{handler.replace('</catch>', '</catch>')}</faultHandlers>{invoke('run', 'a', 'first')}</scope>"
    body = body.replace(handler, handler.replace('t:m">', 't:m"><sequence>').replace("</catch>", "</sequence></catch>"))
    body = body.replace("</faultHandlers>", "</faultHandlers><sequence>").replace("</scope>", "</sequence></scope>")
    run = await start(site, job_process(body))
    assert (await site.result(run))["outcome"] == "completed"
    assert site.ran == ["a", "b"]


async def test_nobody_catches_and_the_line_is_said(site: RunSite) -> None:
    site.fate = lambda _claim: BAD
    run = await start(site, job_process(invoke("run", "a", "first")))
    end = await site.result(run)
    assert end["outcome"] == "failed"
    assert end["reason"].startswith("jobs, line 8: jobFailed")


async def test_submit_and_poll(site: RunSite) -> None:
    run = await start(site, job_process(POLLING))
    end = await site.result(run)
    assert end["outputs"] == {"start": {"body": "completed"}}
    assert site.ran == ["a"]
    assert await patterns(site, run) == {"polling"}


async def test_submit_and_be_told(site: RunSite) -> None:
    run = await start(site, job_process(REGISTERED))
    assert (await site.result(run))["outputs"] == {"start": {"body": "completed"}}
    assert site.ran == ["a"]
    assert await patterns(site, run) == {"notification"}


async def test_fire_and_forget(site: RunSite) -> None:
    site.fate = lambda _claim: BAD
    run = await start(site, job_process(invoke("forget", "a", "first"), state="'sent'"))
    assert (await site.result(run))["outputs"] == {"start": {"body": "sent"}}
    assert await patterns(site, run) == {"fire-and-forget"}


async def test_what_is_given_up_is_cancelled(site: RunSite) -> None:
    site.hold_back = lambda claim: claim["name"] == "a"
    body = f"""<scope><faultHandlers><catchAll><empty/></catchAll></faultHandlers><flow><sequence>{invoke("run", "a", "first")}</sequence>
    <sequence>{invoke("run", "b", "second").replace("$ask", "$ask2").replace('"ask"', '"ask2"')}<throw faultName="t:enough"/></sequence></flow></scope>"""
    run = await start(site, job_process(body, state="'given up'"))
    await site.task_is(run, "a", "cancelled")
    assert (await site.result(run))["outputs"] == {"start": {"body": "given up"}}


async def test_a_person_answers(site: RunSite) -> None:
    run = await start(site, job_process(invoke("approve", "ask")), mapping="partners: {jobs: {approve: manual}}")

    async def tell() -> bool:
        await site.engine.send_message(run, {"partner": "jobs", "operation": "approve", "message": message_plain({"body": "<j:job xmlns:j='urn:forestay:jobs'><j:state>fine</j:state></j:job>"})})  # fmt: skip
        return True

    await until(tell, "the run to hear")
    assert (await site.result(run))["outputs"] == {"start": {"body": "fine"}}


async def test_a_run_that_is_removed_leaves_nothing(site: RunSite) -> None:
    site.hold_back = lambda _claim: True
    run = await start(site, job_process(invoke("run", "a", "first")))
    await site.task_is(run, "a", "running")
    assert (await site.verb(run, VerbKind.REMOVE)).accepted
    assert (await site.ended(run)).state == "removed"
