"""Interface X: any engine reports, waits and obeys; the script client on a real server, with no Temporal."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, RunningServer, until

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.cel.sandbox import CelSandbox
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.apps.compose.reconciler import ReconcilerComponents
from forestay.client import ForestayClient, Patience, RunRemoved, ScriptRun, TaskFailed
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.playbooks.engine_order import MAX_OPEN
from forestay.domain.rules.rule_set import RuleSetId, RuleSetLevel
from forestay.domain.rules.rule_tree import Conclusion
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.services.rules.rule_editor import Edited, RuleDraft, RuleEditor
from forestay.services.rules.rule_store import DOMAIN, RuleStore

AGAIN: dict[str, object] = {"action": "resubmit"}


async def add_rule(
    server: RunningServer | ReconcilerComponents,
    tenant: str,
    *steps: dict[str, object],
    kind: ExceptionType = ExceptionType.ABORT,
    condition: str = 'cause == "memory"',
    **context: Any,
) -> None:
    """As an author and an approver do it, for the whole domain."""
    sandbox = CelSandbox()
    parts = server.components if isinstance(server, ReconcilerComponents) else server.services.components
    try:
        documents = parts.documents
        edit = RuleEditor(RuleStore(documents), CelConditions(), sandbox, SystemClock(), RandomIds().claim)
        name = RuleSetId(tenant, RuleSetLevel.DOMAIN, DOMAIN)
        context_data = context or {"cause": "memory"}
        made = await edit.add(
            RuleDraft(name, kind, "", condition, Conclusion(steps=steps), str(uuid4()), context_data), by="ann"
        )
        assert isinstance(made, Edited), made
        assert isinstance(await edit.promote(name, made.rule, by="ben"), Edited)
        # Otherwise what the server read half a second ago would do.
        await parts.pipeline.decider.rules.refresh()
    finally:
        await sandbox.close()


def script(server: RunningServer, tenant: str, name: str = "nightly", **more: Any) -> ScriptRun:
    return script_at(server.url, server.domain, tenant, name, **more)


def script_at(url: str, domain: Domain, tenant: str, name: str = "nightly", **more: Any) -> ScriptRun:
    client = ForestayClient(url, domain.token("submitter", tenant=tenant), patience=Patience(seconds=5))
    return ScriptRun(name, client=client, closes=True, **more)


def failing(times: int, error: Callable[[], Exception] = MemoryError) -> Callable[..., int]:
    """A function that fails so often, and then works."""
    left = [times]

    def work(value: int) -> int:
        if left[0]:
            left[0] -= 1
            raise error()
        return value + 1

    return work


async def incidents(person: httpx.AsyncClient, **filters: str) -> list[dict[str, Any]]:
    incidents: list[dict[str, Any]] = (await person.get("/v1/incidents", params=filters)).json()["incidents"]
    return incidents


@pytest.mark.ledger("P1-29")
async def test_a_rule_recovers_what_fails_in_a_script(server: RunningServer, tenant: str) -> None:
    await add_rule(server, tenant, AGAIN)

    def work() -> tuple[int, str]:
        with script(server, tenant) as run:
            return run.task("load", failing(2), 7), run.id

    value, run = await asyncio.to_thread(work)
    assert value == 8
    ada = server.person("viewer", tenant=tenant)

    async def both() -> bool:
        return len(await incidents(ada, run=run, state="complete")) == 2

    await until(both, "both incidents")
    whole = (await ada.get(f"/v1/runs/{run}")).json()
    assert (whole["state"], whole["name"], [task["state"] for task in whole["tasks"]]) == (
        "completed",
        "nightly",
        ["completed"],
    )


async def test_without_a_rule_nothing_is_different_from_the_bare_script(server: RunningServer, tenant: str) -> None:
    run = script(server, tenant)

    def work() -> None:
        with run:
            run.task("load", failing(1), 7)

    with pytest.raises(MemoryError):
        await asyncio.to_thread(work)
    ada = server.person("viewer", tenant=tenant)
    (value,) = await until(lambda: incidents(ada, run=run.id, state="failed"), "the failed incident")
    assert value["cause"] == "memory"
    assert (await ada.get(f"/v1/runs/{run.id}")).json()["state"] == "failed"


def test_the_example_runs_without_a_server_as_a_bare_script(tmp_path: Path) -> None:
    example = Path(__file__).parents[5] / "examples" / "engines" / "nightly_script.py"
    places = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "STATE", "CACHE")}
    own = {name: value for name, value in os.environ.items() if not name.startswith(("FORESTAY_", "XDG_"))}
    ran = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, env=own | places, cwd=tmp_path)
    assert ran.returncode == 1
    assert "runs without Forestay" in ran.stderr
    assert "ConnectionResetError: [Errno 104] Connection reset by peer" in ran.stderr


async def test_the_example_is_recovered_by_a_rule(server: RunningServer, tenant: str, tmp_path: Path) -> None:
    await add_rule(server, tenant, AGAIN, condition='cause == "network"', cause="network")
    example = Path(__file__).parents[5] / "examples" / "engines" / "nightly_script.py"
    token = server.domain.token("submitter", tenant=tenant)
    own = os.environ | {"FORESTAY_SERVER": server.url, "FORESTAY_TOKEN": token}
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, str(example)], capture_output=True, text=True, env=own, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert "published 3 lines" in ran.stdout


async def test_what_nobody_foresaw_waits_for_a_rule(server: RunningServer, tenant: str) -> None:
    run = script(server, tenant, hold=True)

    def work() -> int:
        with run:
            return run.task("load", failing(1), 7)

    running = asyncio.create_task(asyncio.to_thread(work))
    ada = server.person("viewer", tenant=tenant)

    async def held() -> bool:
        return bool(run.id) and bool(await incidents(ada, run=run.id, state="held"))

    await until(held, "the incident to be held")
    await add_rule(server, tenant, AGAIN)
    async with server.domain.reconciler() as reconciler:
        while not running.done():
            await server.refresh()
            await reconciler.components.recovery.look_at_incidents()
            await asyncio.sleep(0.05)
    assert await running == 8


async def test_a_person_says_what_a_step_came_to(server: RunningServer, tenant: str) -> None:
    run = script(server, tenant, hold=True)

    def work() -> object:
        with run:
            return run.task("load", failing(1), 7)

    running = asyncio.create_task(asyncio.to_thread(work))
    ada = server.person("submitter", tenant=tenant)

    async def held() -> bool:
        return bool(run.id) and bool(await incidents(ada, run=run.id, state="held"))

    await until(held, "the incident to be held")
    body = {"verb": "force-complete", "task": "load", "changes": {"result": 42}}
    answer = await ada.post(f"/v1/runs/{run.id}/verbs", json=body)
    assert answer.status_code == 200, answer.text
    assert await running == 42

    async def settled() -> bool:
        return bool(await incidents(ada, run=run.id, state="complete"))

    await until(settled, "the incident to wait for nobody")


@pytest.mark.ledger("P1-36")
async def test_a_task_is_redone_skipped_replaced_and_looped(server: RunningServer, tenant: str) -> None:
    """Through the same interface, by a person, for a task of another engine."""
    run = script(server, tenant, hold=True)

    def work() -> list[object]:
        with run:
            return [run.task(f"step-{n}", failing(1 if n < 3 else 3), value=7) for n in range(4)]

    running = asyncio.create_task(asyncio.to_thread(work))
    ada = server.person("submitter", tenant=tenant)

    seen: set[str] = set()

    async def order(task: str, verb: str, **changes: object) -> None:
        async def waits() -> str | None:
            found_incidents = await incidents(ada, run=run.id, state="held") if run.id else []
            return next(
                (
                    incident["id"]
                    for incident in found_incidents
                    if incident["task"] == task and incident["id"] not in seen
                ),
                None,
            )

        seen.add(await until(waits, f"{task} to wait"))
        body = {"verb": verb, "task": task, "changes": changes}
        answer = await ada.post(f"/v1/runs/{run.id}/verbs", json=body)
        assert answer.status_code == 200, answer.text

    await order("step-0", "redo")
    await order("step-1", "skip")
    await order("step-2", "replace", arguments={"value": 41})
    for _ in range(3):
        await order("step-3", "redo")
    assert await running == [8, None, 42, 8]

    async def settled() -> bool:
        return {incident["id"] for incident in await incidents(ada, run=run.id, state="complete")} == seen

    await until(settled, "every incident to wait for nobody")
    assert len(seen) == 6


async def test_a_script_obeys_what_it_is_told(server: RunningServer, tenant: str) -> None:
    await add_rule(
        server, tenant, {"action": "force-fail", "target": "task"}, condition='task.name == "bad"', task={"name": "bad"}
    )
    await add_rule(
        server, tenant, {"action": "remove", "target": "task"}, condition='task.name == "gone"', task={"name": "gone"}
    )

    def work(task: str) -> object:
        with script(server, tenant) as run:
            return run.task(task)(failing(9))(1)

    with pytest.raises(TaskFailed):
        await asyncio.to_thread(work, "bad")
    with pytest.raises(RunRemoved):
        await asyncio.to_thread(work, "gone")


async def test_a_constraint_keeps_a_task_from_starting(server: RunningServer, tenant: str) -> None:
    await add_rule(
        server,
        tenant,
        {"action": "force-fail", "target": "task"},
        kind=ExceptionType.TASK_PRE,
        condition='run.data["rows"] == 0',
        run={"data": {"rows": 0}},
    )
    ran: list[int] = []

    def work(rows: int) -> None:
        with script(server, tenant, data={"rows": rows}) as run:
            run.task("load", ran.append, rows)

    with pytest.raises(TaskFailed):
        await asyncio.to_thread(work, 0)
    await asyncio.to_thread(work, 3)
    assert ran == [3]


# -- the contract, without a client ----------------------------------------------------------------------------


def aborted(run: str, event: str = "e1", **more: Any) -> dict[str, Any]:
    evidence = {"log_tail": "MemoryError", "exit_code": 1}
    return {
        "id": event,
        "run": run,
        "kind": "task-aborted",
        "task": "load",
        "evidence": evidence,
        "otherwise": "hold",
    } | more


async def report(engine: httpx.AsyncClient, *events: dict[str, Any], name: str = "mine") -> list[dict[str, Any]]:
    answer = await engine.post(f"/v1/engines/{name}/events", json={"events": list(events)})
    assert answer.status_code == 200, answer.text
    answers: list[dict[str, Any]] = answer.json()["answers"]
    return answers


async def test_an_engine_reports_polls_and_answers(server: RunningServer, tenant: str) -> None:
    await add_rule(
        server,
        tenant,
        {"action": "resubmit", "how": "changed", "needs": {"memory": {"factor": 2, "at_most": 1 << 36}}, "wait": 3},
    )
    engine = server.person("engine", tenant=tenant, subject="mine")
    key = f"run {uuid4()}"
    started = {"id": "e0", "run": key, "kind": "run-started", "flow": "orders", "owner": "carl"}
    first, second = await report(engine, started, aborted(key))
    assert (first["answer"], second["answer"]) == ("go-on", "wait")
    assert await report(engine, started, aborted(key)) == [first, second], "a repeat is the same"
    run, incident = second["run"], second["incident"]
    asked = {"run": run, "incident": incident, "wait": 5}
    body = (await engine.get("/v1/engines/mine/orders", params=asked)).json()
    (order,) = body["orders"]
    assert (order["verb"], order["task"], order["wait"], order["key"]) == ("resubmit", "load", 3, key)
    assert order["needs"] == {"memory": {"factor": 2.0, "at_most": float(1 << 36)}}
    assert body["incidents"][incident]["closed"] is False
    after = await engine.get("/v1/engines/mine/orders", params={"after": order["n"]})
    assert after.json()["orders"] == []
    where = f"/v1/engines/mine/orders/{order['id']}"
    assert (await engine.post(where, json={"outcome": "done"})).json()["outcome"] == "done"
    assert (await engine.post(where, json={"outcome": "refused"})).json()["outcome"] == "done", "the first answer stays"
    body = (await engine.get("/v1/engines/mine/orders", params=asked)).json()
    assert (body["orders"], body["incidents"][incident]["closed"]) == ([], True)
    await server.refresh()
    (value,) = (await server.person("viewer", tenant=tenant).get("/v1/engines/mine/runs")).json()["runs"]
    assert (value["id"], value["owner"], value["flow"]) == (run, "carl", "orders")


async def test_an_order_that_is_refused_is_for_a_person(server: RunningServer, tenant: str) -> None:
    await add_rule(server, tenant, AGAIN)
    engine = server.person("engine", tenant=tenant, subject="mine")
    (answer,) = await report(engine, aborted("r1"))
    (order,) = (await engine.get("/v1/engines/mine/orders", params={"wait": 5})).json()["orders"]
    refused = {"outcome": "refused", "detail": "this engine cannot"}
    assert (await engine.post(f"/v1/engines/mine/orders/{order['id']}", json=refused)).status_code == 200
    body = (await engine.get("/v1/engines/mine/orders", params={"incident": answer["incident"]})).json()
    assert body["incidents"][answer["incident"]] == {"state": "held", "closed": False, "words": "this engine cannot"}


async def test_nobody_speaks_for_another_engine(server: RunningServer, tenant: str) -> None:
    await add_rule(server, tenant, AGAIN)
    mine = server.person("engine", tenant=tenant, subject="mine")
    (answer,) = await report(mine, aborted("r2"))
    (order,) = (await mine.get("/v1/engines/mine/orders", params={"wait": 5})).json()["orders"]
    other = server.person("submitter", tenant=tenant, subject="eve")
    assert (
        "another"
        in problem(await other.post("/v1/engines/mine/events", json={"events": [aborted("r2", "e9")]}), 409)["detail"]
    )
    assert (await other.get("/v1/engines/mine/orders")).json()["orders"] == []
    where = f"/v1/engines/mine/orders/{order['id']}"
    assert problem(await other.post(where, json={"outcome": "done"}), 404)
    named = {"events": [aborted("r3", owner="carl")]}
    assert "role engine" in problem(await other.post("/v1/engines/mine/events", json=named), 403)["detail"]
    elsewhere = server.person("engine", tenant=f"{tenant}-other", subject="mine")
    assert problem(await elsewhere.post(where, json={"outcome": "done"}), 404)
    asked = {"incident": answer["incident"]}
    assert (await elsewhere.get("/v1/engines/mine/orders", params=asked)).json() == {"orders": [], "incidents": {}}
    (theirs,) = await report(elsewhere, aborted("r2"))
    assert theirs["run"] != answer["run"], "the same names in another tenant are other runs"
    viewer = server.person("viewer", tenant=f"{tenant}-other")
    assert problem(await viewer.get(f"/v1/runs/{answer['run']}"), 404)
    assert problem(await viewer.get(f"/v1/runs/{answer['run']}/story"), 404)


async def test_what_is_reported_is_bounded(server: RunningServer, tenant: str) -> None:
    engine = server.person("engine", tenant=tenant, subject="mine")

    async def refused(status: int, *events: dict[str, Any]) -> str:
        return str(
            problem(await engine.post("/v1/engines/mine/events", json={"events": list(events)}), status)["detail"]
        )

    assert await refused(422, *[aborted("many", f"e{n}") for n in range(101)])
    assert "name it" in await refused(422, aborted("r", task=""))
    assert "not a task" in await refused(422, {"id": "e", "run": "r", "kind": "run-started", "task": "x"})
    assert await refused(413, aborted("large", evidence={"log_tail": "x" * 200_000}))
    assert await refused(422, aborted("r", id="a b"))
    assert MAX_OPEN <= 1000


async def test_secrets_are_not_kept(server: RunningServer, tenant: str) -> None:
    engine = server.person("engine", tenant=tenant, subject="mine")
    evidence = {"log_tail": "MemoryError\npassword=hunter2hunter2", "exit_code": 1}
    (answer,) = await report(engine, aborted("r4", evidence=evidence, data={"api_token": "abcdef123456"}))
    ada = server.person("viewer", tenant=tenant)
    whole = await ada.get(f"/v1/incidents/{answer['incident']}")
    story = await ada.get(f"/v1/runs/{answer['run']}/story")
    run = await ada.get(f"/v1/runs/{answer['run']}")
    for text in (whole.text, story.text, run.text):
        assert "hunter2" not in text
        assert "abcdef123456" not in text


async def test_people_raise_exceptions_for_runs_of_any_engine(server: RunningServer, tenant: str) -> None:
    """One that a rule offers is answered by it; a new one suspends the run at its next step until someone has looked."""
    condition = 'exception.trigger == "weather"'
    await add_rule(
        server,
        tenant,
        {"action": "rollback"},
        kind=ExceptionType.RUN_EXTERNAL,
        condition=condition,
        exception={"trigger": "weather"},
    )
    run, raised = script(server, tenant), threading.Event()
    ran: list[str] = []

    def slowly(name: str) -> None:
        ran.append(name)
        raised.wait(30)

    def work() -> None:
        with run:
            for name in ("one", "two", "three"):
                run.task(name, slowly, name)

    async def at(name: str) -> None:
        async def there() -> bool:
            return ran[-1:] == [name]

        await until(there, f"step {name}")

    running = asyncio.create_task(asyncio.to_thread(work))
    ada = server.person("operator", tenant=tenant)
    await at("one")
    where = f"/v1/runs/{run.id}"
    offered = (await ada.get(f"{where}/triggers")).json()["triggers"]
    assert [entry["name"] for entry in offered] == ["weather"]
    response = await ada.post(f"{where}/triggers", json={"new": "the hall is flooded"})
    assert response.status_code == 200, response.text
    incident = response.json()["incident"]
    raised.set()

    async def obeyed() -> bool:
        lines = (await ada.get(f"{where}/story")).json()["story"]
        return any(line["kind"] == "answer" for line in lines)

    await until(obeyed, "the run to be suspended")
    assert ran == ["one"], "nothing begins while it is suspended"
    raised.clear()
    body = {"verb": "continue", "holder": f"incident:{incident}"}
    assert (await ada.post(f"{where}/verbs", json=body)).status_code == 200
    await at("two")
    assert (await ada.post(f"{where}/triggers", json={"trigger": "weather"})).json()["verdict"] == "playbook"
    raised.set()
    with pytest.raises(TaskFailed):
        await running
    assert ran == ["one", "two"]


@pytest.mark.pair
async def test_a_script_outlives_the_service(own_domain: Domain, tmp_path: Path, tenant: str) -> None:
    """kill -9 while a task waits for a person, and again while it is ordered to go on: nothing is lost, and it runs once more, not twice."""
    calls: list[int] = []

    def load(value: int) -> int:
        calls.append(value)
        if len(calls) == 1:
            raise MemoryError
        return value + 1

    async with processes(own_domain, tmp_path) as running, own_domain.reconciler() as reconciler:
        server = await running.server()
        run = script_at(server.url, own_domain, tenant, hold=True)

        def work() -> int:
            with run:
                return run.task("load", load, 7)

        working = asyncio.create_task(asyncio.to_thread(work))
        incidents_of = reconciler.components.incidents

        async def status(*states: str) -> bool:
            await reconciler.components.store.refresh()
            page = await incidents_of.find(IncidentQuery(tenant=tenant))
            return any(stored.status.state.value in states for stored in page.statuses)

        async def waits() -> bool:
            """The store knows of the incident before the script does, and a report without an answer is given up after seconds."""
            return "load" in run._commands.waiting

        await until(lambda: status("held"), "the incident to be held")
        await until(waits, "the script to wait for it")
        server.kill()
        await add_rule(reconciler, tenant, AGAIN)
        await reconciler.components.recovery.look_at_incidents()
        assert await status("acting"), "the order stands, and nobody is there to tell it"
        again = await running.server(port=int(server.url.rpartition(":")[2]))
        assert await asyncio.wait_for(working, 60) == 8
        assert calls == [7, 7]
        await until(lambda: status("complete"), "the incident to be complete")
        again.kill()


@pytest.mark.ledger("P1-30")
async def test_the_story_joins_both_logs(server: RunningServer, tenant: str) -> None:
    await add_rule(server, tenant, AGAIN)
    run = script(server, tenant)

    def work() -> int:
        with run:
            return run.task("load", failing(1), 7)

    assert await asyncio.to_thread(work) == 8
    await server.refresh()
    ada = server.person("viewer", tenant=tenant)
    lines: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = (
            await ada.get(f"/v1/runs/{run.id}/story", params={"limit": 5} | ({"cursor": cursor} if cursor else {}))
        ).json()
        lines += page["story"]
        cursor = page["cursor"]
        if cursor is None:
            break
    times = [line["at"] for line in lines]
    assert times == sorted(times)
    kinds = [line["kind"] for line in lines]
    order = ["event", "incident", "decision", "audit", "step", "order", "answer", "step", "status", "event"]
    at = 0
    for kind in order:
        at = kinds.index(kind, at) + 1
    words = "\n".join(line["words"] for line in lines)
    for word in (
        "load failed: MemoryError",
        "cause memory",
        "rule",
        "resubmit load",
        "The engine replied: done",
        "The run is complete",
    ):
        assert word in words, words


async def test_a_failure_that_its_engine_goes_on_with_is_not_said_to_wait_for_a_person(
    server: RunningServer, tenant: str
) -> None:
    engine = server.person("engine", tenant=tenant, subject="mine")
    unknown = {"exit_code": 1, "log_tail": "quux: all seats are taken"}
    (answer,) = await report(engine, aborted(f"run {uuid4()}", otherwise="go-on", evidence=unknown))
    assert answer["answer"] == "go-on"
    person = server.person("operator", tenant=tenant)
    incident = (await person.get(f"/v1/incidents/{answer['incident']}")).json()
    assert incident["state"] == "failed"
    assert incident["note"] == answer["words"]
    assert incident["note"].endswith("its engine does not wait for a person")
    assert "held" not in incident["note"]
