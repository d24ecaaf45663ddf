"""What rules choose for a task that was forwarded: another domain, polling again, registering again (paper P0, section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import tes
from tests.system.proxy.conftest import NAME, TENANT, Proxy, TaskServer, downstream
from tests.system.proxy.road import Road, open_road
from tests.system.proxy.tasks import create, runs, shell, wait
from tests.system.proxy.test_proxy import conversation
from tests.unit.apps.server.callback_listener import listen
from tests.unit.apps.server.running import Domain, RunningServer, until

from forestay.apps.compose.loops import run_loops, stop
from forestay.domain.jobs.conversation import DOWNSTREAM_TAG
from forestay.services.exceptions.decide.decider import FRESH

DEAD = "dead"
FIRST = "first"


async def promote(
    server: RunningServer, condition: str, context: dict[str, Any], *steps: dict[str, Any], kind: str = "abort"
) -> None:
    """An active rule; its condition is true of the context."""
    ann = server.person("operator", tenant=TENANT)
    conclusion = {"steps": list(steps)}
    draft = {
        "type": kind,
        "condition": condition,
        "conclusion": conclusion,
        "reference_incident": f"written-for-{crc32(condition.encode())}",
        "context": context,
    }
    added = await ann.post("/v1/rules/domain/site", json=draft | {"confirmed": True})
    assert added.status_code == 200, added.text
    promoted = await ann.post(f"/v1/rules/domain/site/rules/{added.json()['rule']}/state", json={})
    assert promoted.status_code == 200, promoted.text


@pytest.fixture(scope="module")
async def first(inner: TaskServer) -> AsyncIterator[Road]:
    async with open_road(inner.server.url) as opened:
        yield opened


@pytest.fixture(scope="module")
async def proxy(
    inner: TaskServer, first: Road, road: Road, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Proxy]:
    """A proxy before a task server that never answers and two that do, with its reconciler."""
    folder = tmp_path_factory.mktemp("domains")
    domain = Domain(f"sqlite:///{folder}/domains.db", folder)
    tables = [
        downstream(inner, "http://127.0.0.1:9", name=DEAD),
        downstream(inner, first.url, name=FIRST, patience=1.0),
        downstream(inner, road.url, callbacks=True),
    ]
    settings: dict[str, Any] = {"callback_hosts": ("127.0.0.1",), "unavailable_after": 1.0}
    async with (
        domain.server(downstreams=tables, callback_hosts=("127.0.0.1",)) as server,
        domain.reconciler(**settings) as reconciler,
    ):
        loops = asyncio.create_task(run_loops(reconciler.loops()))
        try:
            yield Proxy(server, road)
        finally:
            await stop(loops)


async def story(proxy: Proxy, job: str) -> str:
    body = (await proxy.server.person("viewer", tenant=TENANT).get(f"/v1/jobs/{job}/story")).json()
    return "\n".join(line["note"] for line in body["story"])


@pytest.mark.ledger("P0-15")
async def test_a_rule_resubmits_in_another_domain_what_the_first_scheduler_never_took(
    proxy: Proxy, road: Road, tmp_path: Path
) -> None:
    step = {"action": "resubmit", "how": "other-domain", "domain": NAME}
    context = {"cause": "scheduler", "job": {"patterns": ["polling"]}}
    condition = 'cause == "scheduler" && !("execution" in job.patterns)'
    await promote(proxy.server, condition, context, step, kind="resource-unavailable")
    client = proxy.client()
    task = await create(client, shell("never-taken", f"echo ran >> {tmp_path}/ran", tags={DOWNSTREAM_TAG: DEAD}))
    assert (await wait(client, task))["state"] == "COMPLETE"
    (exchange,) = (await conversation(proxy, task))["exchanges"]
    assert (exchange["downstream"], exchange["task"]) == (NAME, road.tasks("never-taken")[0])
    assert runs(tmp_path / "ran") == 1
    assert f"in domain {NAME}" in await story(proxy, task)


@pytest.mark.ledger("P0-15", "P0-17")
async def test_a_rule_resubmits_in_another_domain_and_polls_again_when_the_first_scheduler_is_gone(
    proxy: Proxy, first: Road, road: Road, tmp_path: Path
) -> None:
    steps = {"action": "resubmit", "how": "other-domain"}, {"action": "repoll"}
    context = {"cause": "network", "job": {"patterns": ["polling", "execution"]}}
    await promote(proxy.server, 'cause == "network" && "polling" in job.patterns', context, *steps)
    relay = next(relay for relay in proxy.server.services.relays.relays if relay.name == FIRST)

    async def answers() -> bool:
        return relay.server.answers

    await until(answers, "the first task server to answer")
    first.to = "http://127.0.0.1:9"  # its server is gone
    client = proxy.client()
    task = await create(client, shell("moved", f"echo ran >> {tmp_path}/ran", tags={DOWNSTREAM_TAG: FIRST}))
    seen: set[str] = set()

    async def ended() -> bool:
        shown: tes.Task = await asyncio.to_thread(client.get_task, task, "MINIMAL")
        seen.add(shown.state)
        return bool(shown.state not in ("QUEUED", "INITIALIZING", "RUNNING"))

    await until(ended, "the end")
    assert seen <= {"QUEUED", "INITIALIZING", "RUNNING", "COMPLETE"}, "the client saw something of it"
    (exchange,) = (await conversation(proxy, task))["exchanges"]
    assert (exchange["downstream"], exchange["task"]) == (NAME, road.tasks("moved")[0])
    assert not exchange["registered"], "its end is polled for"
    assert runs(tmp_path / "ran") == 1
    lines = await story(proxy, task)
    assert "in another domain" in lines
    assert "polls are answered for attempt 2" in lines


@pytest.mark.ledger("P0-17", "P0-18")
async def test_rules_choose_whether_the_resubmitted_task_is_polled_for_or_registered_again(
    proxy: Proxy, road: Road
) -> None:
    """Attempt 1 is registered as the task server is configured; a rule has attempt 2 polled for, and another has attempt 3 registered again."""
    name = "chosen"
    road.ended_as[name], road.spoiled[name] = "PREEMPTED", 2
    for attempt, action in ((1, "repoll"), (2, "reregister")):
        condition = f'cause == "preempted" && job.name == "{name}" && job.attempt == {attempt}'
        context = {"cause": "preempted", "job": {"name": name, "attempt": attempt}}
        await promote(proxy.server, condition, context, {"action": "resubmit"}, {"action": action})
    await asyncio.sleep(FRESH)  # as old as a copy of the rules may be
    async with listen() as listener:
        body = {
            "specification": {"name": name, "command": ["true"], "container": "alpine"},
            "jobs": [{"callback": listener.url("/chosen"), "labels": {DOWNSTREAM_TAG: NAME}}],
        }
        answer = await proxy.server.person("submitter", tenant=TENANT).post("/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        (job,) = [accepted["id"] for accepted in answer.json()["jobs"]]

        async def notified() -> bool:
            return bool(listener.seen)

        await until(notified, "the callback")
    assert [(delivered.body["job"], delivered.body["state"]) for delivered in listener.seen] == [(job, "completed")]
    exchanges = (await conversation(proxy, job))["exchanges"]
    assert [(exchange["task"], exchange["registered"]) for exchange in exchanges] == list(
        zip(road.tasks(name), [True, False, True], strict=True)
    )
    lines = await story(proxy, job)
    assert "polls are answered for attempt 2" in lines
    assert "registered again for attempt 3: callback, relay" in lines
