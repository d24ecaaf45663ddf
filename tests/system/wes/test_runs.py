"""The Workflow Execution Service on a real Temporal, a real store and a real pilot."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.live.run_site import TENANT
from tests.system.wes.conftest import BASE, WesSite
from tests.system.wes.flows import FAILS, GREET, LONG, NESTED, PYTHON, READS
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import until

pytestmark = pytest.mark.live


async def test_a_run_from_its_request_to_its_logs(wes: WesSite) -> None:
    run = await wes.run(GREET, '{"who": "ada"}', tags='{"project": "p1"}')
    assert await wes.ended(run) == "COMPLETE"
    whole = await wes.get(f"/runs/{run}")
    assert whole["request"] == {
        "workflow_params": {"who": "ada"},
        "workflow_type": "FORESTAY",
        "workflow_type_version": "1",
        "workflow_url": "flow.yaml",
        "tags": {"project": "p1"},
        "workflow_engine_parameters": {},
    }
    assert whole["outputs"] == {"code": 0}
    assert whole["run_log"]["name"] == "greet"
    assert whole["run_log"]["exit_code"] == 0
    assert whole["run_log"]["end_time"] >= whole["run_log"]["start_time"]
    listed = await wes.person.get(whole["task_logs_url"])
    tasks = {task_log["name"]: task_log for task_log in listed.json()["task_logs"]}
    assert listed.json()["next_page_token"] == ""
    assert sorted(tasks) == ["hello", "twice"]
    hello = tasks["hello"]
    assert hello["cmd"][0] == "sh"
    assert hello["exit_code"] == 0
    assert hello["tes_uri"].endswith(f"/ga4gh/tes/v1/tasks/{hello['id']}")
    assert await wes.get(f"/runs/{run}/tasks/{hello['id']}") == hello
    printed = await wes.person.get(hello["stdout"])
    assert printed.headers["content-type"].startswith("text/plain")
    assert "hello ada" in printed.text
    assert "to stderr" in (await wes.person.get(hello["stderr"])).text
    assert json.loads((await wes.person.get(whole["run_log"]["stdout"])).text) == {"code": 0}
    assert "hello" in (await wes.person.get(whole["run_log"]["stderr"])).text


async def test_the_states_of_runs_that_fail_and_that_are_cancelled(wes: WesSite) -> None:
    bad, long = await wes.run(FAILS), await wes.run(LONG)
    assert await wes.ended(bad) == "EXECUTOR_ERROR"
    assert (await wes.get(f"/runs/{bad}"))["run_log"]["exit_code"] == 1
    assert await wes.state(long) == "RUNNING"
    answer = await wes.person.post(f"{BASE}/runs/{long}/cancel")
    assert answer.json() == {"run_id": long}
    assert await wes.state(long) in ("CANCELING", "CANCELED")
    assert await wes.ended(long) == "CANCELED"
    again = await wes.person.post(f"{BASE}/runs/{long}/cancel")
    assert again.json() == {"run_id": long}
    assert (await wes.person.post(f"{BASE}/runs/{bad}/cancel")).status_code == 200
    assert await wes.state(bad) == "EXECUTOR_ERROR", "what has ended stays as it is"
    counts = (await wes.get("/service-info"))["system_state_counts"]
    assert counts["EXECUTOR_ERROR"] >= 1


async def test_a_list_has_the_runs_of_its_first_page_in_one_order(wes: WesSite) -> None:
    mine = wes.site.server.person("submitter", tenant="lister", subject="lin")
    made = []
    for _ in range(5):
        answer = await wes.post(LONG, person=mine, tags='{"n": "1"}')
        made.append(answer.json()["run_id"])
    seen: list[str] = []
    token = ""
    for turn in range(10):
        answer = await mine.get(f"{BASE}/runs", params={"page_size": 2, "page_token": token})
        page = answer.json()
        assert len(page["runs"]) <= 2
        assert all(run["tags"] == {"n": "1"} and run["start_time"] for run in page["runs"])
        seen += [run["run_id"] for run in page["runs"]]
        if turn == 0:
            await wes.post(LONG, person=mine)
        token = page["next_page_token"]
        if not token:
            break
    assert seen == made, "the run that came later is not in this list, and none is there twice"
    assert len((await mine.get(f"{BASE}/runs")).json()["runs"]) == 6
    for run in (await mine.get(f"{BASE}/runs")).json()["runs"]:
        await mine.post(f"{BASE}/runs/{run['run_id']}/cancel")


async def test_many_of_one_millisecond_are_neither_lost_nor_repeated(wes: WesSite) -> None:
    """Ten at once, in pages of one."""
    mine = wes.site.server.person("submitter", tenant="crowd", subject="cy")
    answers = await asyncio.gather(*(wes.post(LONG, person=mine) for _ in range(10)))
    made = {answer.json()["run_id"] for answer in answers}
    seen: list[str] = []
    token = ""
    while True:
        page = (await mine.get(f"{BASE}/runs", params={"page_size": 1, "page_token": token})).json()
        seen += [run["run_id"] for run in page["runs"]]
        token = page["next_page_token"]
        if not token:
            break
    assert sorted(seen) == sorted(made)
    await asyncio.gather(*(mine.post(f"{BASE}/runs/{run}/cancel") for run in made))


async def test_a_key_makes_a_repeat_the_same_run(wes: WesSite) -> None:
    first, again, at_once = await asyncio.gather(*(wes.post(GREET, '{"who": "k"}', key="k1") for _ in range(3)))
    assert first.status_code == 200, first.text
    assert first.json() == again.json() == at_once.json()
    problem(await wes.post(GREET, '{"who": "other"}', key="k1"), 409)
    problem(await wes.post(FAILS, '{"who": "k"}', key="k1"), 409)
    operator = wes.site.server.person("operator", tenant=TENANT, subject="olga")
    theirs = await wes.post(GREET, '{"who": "k"}', key="k1", person=operator)
    assert theirs.json() != first.json(), "keys are those of one caller"


async def test_attachments_are_where_parameters_say(wes: WesSite) -> None:
    run = await wes.run(READS, '{"data": "in/data.txt"}', files={"in/data.txt": b"the data"})
    assert await wes.ended(run) == "COMPLETE"
    (task,) = (await wes.get(f"/runs/{run}/tasks"))["task_logs"]
    assert "the data" in (await wes.person.get(task["stdout"])).text
    assert (await wes.get(f"/runs/{run}"))["request"]["workflow_params"] == {"data": "in/data.txt"}


@pytest.mark.parametrize(
    "name", ["../out.txt", "/etc/x", "a/../../b", "a//b", "./a", "a/", "..", "a\\..\\b", "x" * 501, "nul\0"]
)
async def test_attachments_that_lead_elsewhere_are_refused(wes: WesSite, name: str) -> None:
    parts = [("workflow_attachment", ("flow.yaml", READS.encode())), ("workflow_attachment", (name, b"x"))]
    form = {"workflow_type": "FORESTAY", "workflow_type_version": "1", "workflow_url": "flow.yaml"}
    answer = await wes.person.post(f"{BASE}/runs", data=form, files=parts)
    problem(answer, 400)


async def test_requests_that_cannot_be_taken_say_why(wes: WesSite) -> None:
    many = {f"f{n}": b"" for n in range(120)}
    large = {"large": b"x" * (17 << 20)}
    wrong = {
        "not JSON": await wes.post(GREET, "{"),
        "no object": await wes.post(GREET, "[1]"),
        "tags are texts": await wes.post(GREET, tags='{"a": 1}'),
        "fetched": await wes.post(GREET, workflow_url="https://example.org/flow.yaml"),
        "of a file": await wes.post(GREET, workflow_url="file:///etc/passwd"),
        "not there": await wes.post(GREET, workflow_url="other.yaml"),
        "type": await wes.post(GREET, workflow_type="CWL"),
        "version": await wes.post(GREET, workflow_type_version="2"),
        "engine": await wes.post(GREET, workflow_engine="toil"),
        "engine's version alone": await wes.post(GREET, workflow_engine_version="1"),
        "unknown parameter": await wes.post(GREET, '{"what": 1}'),
        "too many": await wes.post(GREET, files=many),
        "too large": await wes.post(GREET, files=large),
        "a bad flow": await wes.post("forestay: 1\nname: x\ntasks: {a: {}}\n"),
        "twice": await wes.post(GREET, files={"a": b"", "a/b": b""}),
        "no form": await wes.person.post(f"{BASE}/runs", json={}),
        "not UTF-8": await wes.person.post(f"{BASE}/runs", data={"workflow_type": b"\xff\xfe"}),
        "a token of another": await wes.person.get(f"{BASE}/runs", params={"page_token": "bm9uZQ=="}),
        "page size": await wes.person.get(f"{BASE}/runs", params={"page_size": 0}),
    }
    for what, answer in wrong.items():
        assert answer.status_code == 400, (what, answer.status_code, answer.text)
        problem(answer, 400)
    assert "tasks.a" in wrong["a bad flow"].json()["msg"]
    for path in ("/runs/none", "/runs/none/status", "/runs/none/tasks", "/runs/none/tasks/x", "/runs/none/stderr"):
        problem(await wes.person.get(f"{BASE}{path}"), 404)
    problem(await wes.post(GREET, workflow_url="0" * 64), 404)


async def test_runs_of_other_tenants_do_not_exist(wes: WesSite) -> None:
    run = await wes.run(GREET)
    await wes.ended(run)
    (task, *_) = (await wes.get(f"/runs/{run}/tasks"))["task_logs"]
    eve = wes.site.server.person("administrator", tenant="evil", subject="eve")
    for path in ("", "/status", "/tasks", f"/tasks/{task['id']}", "/stdout", "/stderr", f"/tasks/{task['id']}/stdout"):
        problem(await eve.get(f"{BASE}/runs/{run}{path}"), 404)
    problem(await eve.post(f"{BASE}/runs/{run}/cancel"), 404)
    assert (await eve.get(f"{BASE}/runs")).json() == {"runs": [], "next_page_token": ""}
    other = wes.site.server.person("submitter", tenant=TENANT, subject="mallory")
    problem(await other.post(f"{BASE}/runs/{run}/cancel"), 403)


async def test_python_flows_are_those_of_the_operators_folder(wes: WesSite) -> None:
    by_name = await wes.run(GREET, '{"who": "p"}', workflow_type="FORESTAY-PYTHON", workflow_url="greeting")
    copied: dict[str, Any] = {"workflow_type": "FORESTAY-PYTHON", "workflow_url": "mine.py"}
    by_copy = await wes.run(GREET, files={"mine.py": PYTHON.encode()}, **copied)
    problem(await wes.post(GREET, files={"mine.py": PYTHON.replace("hello", "rm").encode()}, **copied), 400)
    problem(await wes.post(GREET, workflow_type="FORESTAY-PYTHON", workflow_url="none"), 404)
    assert await wes.ended(by_name) == await wes.ended(by_copy) == "COMPLETE"
    assert (await wes.get(f"/runs/{by_name}"))["outputs"] == {"code": 0}


async def test_sub_flows_are_tasks_and_runs_of_their_own(wes: WesSite) -> None:
    run = await wes.run(NESTED)
    assert await wes.ended(run) == "COMPLETE"
    tasks: list[dict[str, str]] = []
    token = ""
    while True:
        page = await wes.get(f"/runs/{run}/tasks", page_size=2, page_token=token)
        tasks += page["task_logs"]
        token = page["next_page_token"]
        if not token:
            break
    assert [task["name"] for task in tasks] == ["last", "each[0]", "each[1]", "each[2]"]
    inner = await wes.get(f"/runs/{tasks[1]['id']}")
    assert inner["state"] == "COMPLETE"
    assert inner["run_log"]["name"] == "inner"
    assert (await wes.get(f"/runs/{run}/tasks/{tasks[1]['id']}"))["name"] == "each[0]"
    listed = {run["run_id"] for run in (await wes.get("/runs", page_size=1000))["runs"]}
    assert run in listed
    assert tasks[1]["id"] not in listed


async def test_a_run_that_was_started_otherwise_can_be_read_as_a_run(wes: WesSite) -> None:
    run = await wes.site.start(GREET, who="x")
    await wes.site.ended(run)
    whole = await wes.get(f"/runs/{run}")
    assert whole["state"] == "COMPLETE"
    assert whole["request"]["workflow_params"] == {"who": "x"}
    assert len(whole["request"]["workflow_url"]) == 64


async def test_how_a_run_ended_is_known_after_the_engine_forgot_it(wes: WesSite) -> None:
    run = await wes.run(GREET)
    assert await wes.ended(run) == "COMPLETE"
    client = await wes.site.engine.client()
    await client.workflow_service.delete_workflow_execution(_deletion(client.namespace, run))
    runs = wes.site.server.services.runs
    assert runs is not None
    runs._ended.clear()

    async def forgotten() -> bool:
        answer = await wes.person.get(f"/v1/runs/{run}")
        return answer.status_code == 404

    # The engine deletes by a task of its own, in its own time.
    await until(forgotten, "the engine to forget the run")
    assert await wes.state(run) == "COMPLETE"
    whole = await wes.get(f"/runs/{run}")
    assert whole["run_log"]["end_time"]
    assert whole["request"]["workflow_url"] == "flow.yaml"


def _deletion(namespace: str, run: str) -> object:
    from temporalio.api.common.v1 import WorkflowExecution
    from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest

    return DeleteWorkflowExecutionRequest(namespace=namespace, workflow_execution=WorkflowExecution(workflow_id=run))
