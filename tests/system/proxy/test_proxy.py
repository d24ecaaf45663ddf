"""The proxy between an unmodified client (py-tes) and a task server that knows nothing of it (paper P0, sections 4 and 5)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import tes
from tests.system.proxy.conftest import INNER, NAME, TENANT, Proxy, TaskServer, downstream
from tests.system.proxy.road import Road
from tests.system.proxy.tasks import answers, create, run, runs, shell, wait
from tests.unit.apps.server.callback_listener import listen
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until

from forestay.domain.jobs.conversation import DOWNSTREAM_TAG


def many_kinds(out: Path) -> list[tes.Task]:
    """Tasks that end well, fail, have several executors, bring files in and out."""
    return [
        shell("well", "echo out; echo err >&2"),
        shell("badly", "echo no >&2; exit 3"),
        tes.Task(
            name="in turn",
            executors=[
                tes.Executor(image="alpine", command=["sh", "-c", "echo $WHO > /data/who"], env={"WHO": "ada"}),
                tes.Executor(image="alpine", command=["cat", "/data/who"]),
            ],
            volumes=["/data"],
            tags={"kind": "several"},
        ),
        tes.Task(
            name="files",
            inputs=[tes.Input(path="/data/in.txt", content="brought\n")],
            outputs=[tes.Output(path="/data/out.txt", url=f"file://{out}/out.txt")],
            executors=[tes.Executor(image="alpine", command=["sh", "-c", "tr a-z A-Z < /data/in.txt > /data/out.txt"])],
            resources=tes.Resources(cpu_cores=1, ram_gb=0.5),
        ),
    ]


@pytest.mark.ledger("P0-22")
async def test_the_same_tasks_get_the_same_answers_as_bare(inner: TaskServer, proxy: Proxy, tmp_path: Path) -> None:
    bare, through = tmp_path / "bare", tmp_path / "through"
    bare.mkdir()
    through.mkdir()
    wanted = await asyncio.gather(*(run(inner.client(), task) for task in many_kinds(bare)))
    seen = await asyncio.gather(*(run(proxy.client(), task) for task in many_kinds(through)))
    for first, other in zip(wanted, seen, strict=True):
        named = {str(bare): "OUT", str(through): "OUT"}
        assert _named(answers(other), named) == _named(answers(first), named)
    assert (through / "out.txt").read_text() == (bare / "out.txt").read_text() == "BROUGHT\n"


def _named(shown: dict[str, Any], names: dict[str, str]) -> str:
    text = repr(sorted(shown.items()))
    for name, other in names.items():
        text = text.replace(name, other)
    return text


@pytest.mark.ledger("P0-14", "P0-17", "P0-23")
@pytest.mark.parametrize("state", ["SYSTEM_ERROR", "PREEMPTED"])
async def test_a_failure_of_the_server_is_recovered_unseen(
    proxy: Proxy, road: Road, tmp_path: Path, state: str
) -> None:
    name = f"first-{state}"
    road.ended_as[name] = state
    client = proxy.client()
    task = await create(client, shell(name, f"echo ran >> {tmp_path}/ran"))
    seen: set[str] = set()

    async def ended() -> bool:
        shown = await asyncio.to_thread(client.get_task, task, "MINIMAL")
        seen.add(shown.state)
        return bool(shown.state not in ("QUEUED", "INITIALIZING", "RUNNING"))

    await until(ended, "the end")
    shown = await wait(client, task)
    assert shown["state"] == "COMPLETE"
    assert seen <= {"QUEUED", "INITIALIZING", "RUNNING", "COMPLETE"}, "the client saw something of it"
    assert len(shown["logs"]) == 1
    assert len(road.tasks(name)) == 2
    returned_conversation = await conversation(proxy, task)
    assert [exchange["task"] for exchange in returned_conversation["exchanges"]] == road.tasks(name), (
        "the old id stands for the new task"
    )
    assert runs(tmp_path / "ran") == 2


async def conversation(proxy: Proxy, task: str) -> dict[str, Any]:
    person = proxy.server.person("viewer", tenant=TENANT)

    async def written() -> Any:
        body = (await person.get(f"/v1/jobs/{task}/conversation")).json()
        return body if body["exchanges"] and body["exchanges"][-1]["attempt"] == body["attempt"] else None

    result: dict[str, Any] = await until(written, "the conversation")
    return result


@pytest.mark.ledger("P0-14", "P0-17")
async def test_a_task_that_the_server_forgot_is_sent_again(proxy: Proxy, road: Road, tmp_path: Path) -> None:
    road.forgotten.add("forgotten")
    shown = await run(proxy.client(), shell("forgotten", f"echo ran >> {tmp_path}/ran; sleep 0.2"))
    assert shown["state"] == "COMPLETE"
    assert len(road.tasks("forgotten")) == 2


async def test_a_creation_whose_answer_is_lost_is_found_again_and_not_sent_twice(
    proxy: Proxy, road: Road, tmp_path: Path
) -> None:
    road.lost_answers.add("unanswered")
    shown = await run(proxy.client(), shell("unanswered", f"echo ran >> {tmp_path}/ran"))
    assert shown["state"] == "COMPLETE"
    assert len(road.tasks("unanswered")) == 1
    assert runs(tmp_path / "ran") == 1
    assert proxy.relay.sending.doubled == 0


async def test_what_fails_by_itself_fails_as_it_would_bare(proxy: Proxy, road: Road) -> None:
    shown = await run(proxy.client(), shell("its-own-failure", "exit 7"))
    assert shown["state"] == "EXECUTOR_ERROR"
    assert shown["logs"][0]["logs"][0]["exit_code"] == 7
    assert len(road.tasks("its-own-failure")) == 1


async def test_what_is_cancelled_is_cancelled_at_the_server_too(
    inner: TaskServer, proxy: Proxy, road: Road, tmp_path: Path
) -> None:
    client = proxy.client()
    task = await create(client, shell("cancelled", f"echo ran >> {tmp_path}/ran; sleep 60"))

    async def running() -> bool:
        return runs(tmp_path / "ran") == 1

    await until(running, "the task to run")
    await asyncio.to_thread(client.cancel_task, task)
    (there,) = road.tasks("cancelled")

    async def cancelled() -> bool:
        shown = await asyncio.to_thread(inner.client().get_task, there, "MINIMAL")
        return bool(shown.state in ("CANCELING", "CANCELED"))

    await until(cancelled, "the task there to be cancelled")


@pytest.mark.ledger("P0-06", "P0-18")
async def test_a_callback_is_registered_again_for_the_task_that_is_sent_again(proxy: Proxy, road: Road) -> None:
    """The client registers once, natively; the first task is preempted; it is told once, of the job that it knows."""
    road.ended_as["told"] = "PREEMPTED"
    async with listen() as listener:
        person = proxy.server.person("submitter", tenant=TENANT)
        body = {
            "specification": {"name": "told", "command": ["true"], "container": "alpine"},
            "jobs": [{"callback": listener.url("/told"), "labels": {DOWNSTREAM_TAG: NAME}}],
        }
        answer = await person.post("/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        (job,) = [other_job["id"] for other_job in answer.json()["jobs"]]

        async def told() -> bool:
            return bool(listener.seen)

        await until(told, "the callback")
    assert [(delivered.body["job"], delivered.body["state"]) for delivered in listener.seen] == [(job, "completed")]
    first, second = road.tasks("told")
    told_of = await conversation(proxy, job)
    assert [(exchange["task"], exchange["registered"]) for exchange in told_of["exchanges"]] == [
        (first, True),
        (second, True),
    ]
    assert told_of["callback"]["url"] == listener.url("/told")
    for task in (first, second):

        async def heard(task: str = task) -> bool:
            return task in proxy.hints

        await until(heard, "the task server to call back for each of the two tasks")


@pytest.mark.ledger("P0-15")
async def test_another_server_takes_what_the_first_cannot(
    inner: TaskServer, road: Road, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder = tmp_path_factory.mktemp("two")
    dead = downstream(inner, "http://127.0.0.1:9", name="dead")
    async with Domain(f"sqlite:///{folder}/two.db", folder).server(
        downstreams=[dead, downstream(inner, road.url)]
    ) as server:
        client = tes.HTTPClient(server.url, timeout=10, token=server.domain.token("submitter", tenant=TENANT))
        shown = await run(client, shell("elsewhere", f"echo ran >> {tmp_path}/ran", tags={DOWNSTREAM_TAG: "any"}))
        assert shown["state"] == "COMPLETE"
        assert runs(tmp_path / "ran") == 1


@pytest.mark.pair
async def test_a_server_that_is_away_for_ten_seconds_is_waited_for(
    inner: TaskServer, proxy: Proxy, road: Road, tmp_path: Path
) -> None:
    client = proxy.client()
    before = [await create(client, shell(f"before-{n}", f"sleep 3; echo ran >> {tmp_path}/{n}")) for n in range(2)]

    async def sent() -> bool:
        return all(road.tasks(f"before-{n}") for n in range(2))

    await until(sent, "the tasks to be sent")
    inner.server.kill_alone()
    meanwhile = await create(client, shell("meanwhile", f"echo ran >> {tmp_path}/meanwhile"))
    await asyncio.sleep(10)
    await inner.back()
    for task in [*before, meanwhile]:
        assert (await wait(client, task))["state"] == "COMPLETE"
    assert [runs(tmp_path / name) for name in ("0", "1", "meanwhile")] == [1, 1, 1]


@pytest.mark.pair
async def test_when_the_proxy_dies_its_tasks_are_found_again_and_none_is_sent_twice(
    inner: TaskServer, road: Road, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder = tmp_path_factory.mktemp("dying")
    domain = Domain(f"sqlite:///{folder}/dying.db", folder)
    async with processes(domain, folder, lease=60, downstreams=json.dumps([downstream(inner, road.url)])) as running:
        first = await running.server()
        client = tes.HTTPClient(first.url, timeout=10, token=domain.token("submitter", tenant=TENANT))
        tasks = [await create(client, shell(f"dying-{n}", f"sleep 1; echo ran >> {tmp_path}/{n}")) for n in range(3)]

        async def sent() -> bool:
            return bool(road.tasks("dying-0"))

        await until(sent, "the first task to be sent")
        first.kill_alone()
        second = await running.server(port=int(first.url.rpartition(":")[2]))
        assert second.url == first.url
        for n, task in enumerate(tasks):
            assert (await wait(client, task))["state"] == "COMPLETE"
            assert runs(tmp_path / str(n)) == 1, "sent twice"
            assert len(road.tasks(f"dying-{n}")) == 1


async def test_a_downstream_of_another_tenant_is_none(proxy: Proxy) -> None:
    person = proxy.server.person("submitter", tenant="someone-else")
    body = {
        "specification": {"name": "x", "command": ["true"]},
        "jobs": [{"labels": {DOWNSTREAM_TAG: NAME}}],
    }
    answer = await person.post("/v1/jobs", json=body)
    assert answer.status_code == 422
    assert INNER in answer.text
