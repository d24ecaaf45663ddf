"""The checklist of TES 1.1: every endpoint, view, filter and paging rule, at both of its paths, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
import tes
from tests.system.tes.conftest import Site

Json = dict[str, Any]
ECHO: Json = {"image": "alpine", "command": ["echo", "hello"]}


@pytest.fixture(params=["/ga4gh/tes/v1", "/v1"])
def base(request: pytest.FixtureRequest) -> str:
    path: str = request.param
    return path


@pytest.fixture(scope="module")
def alone(site: Site) -> Iterator[httpx.Client]:
    """A tenant without pilots: its tasks stay in the queue."""
    with site.plain(tenant=f"q-{uuid4().hex[:8]}") as client:
        yield client


@pytest.fixture
def fresh(site: Site) -> Iterator[httpx.Client]:
    """The same, with no tasks of others."""
    with site.plain(tenant=f"q-{uuid4().hex[:8]}") as client:
        yield client


def made(client: httpx.Client, base: str = "/ga4gh/tes/v1", **more: Any) -> str:
    answer = client.post(f"{base}/tasks", json={"executors": [ECHO], **more})
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"id"}
    name: str = answer.json()["id"]
    return name


def seen(client: httpx.Client, name: str, view: str = "FULL") -> Json:
    answer = client.get(f"/ga4gh/tes/v1/tasks/{name}", params={"view": view})
    assert answer.status_code == 200, answer.text
    task: Json = answer.json()
    return task


def refused(answer: httpx.Response, status: int, word: str = "") -> None:
    assert answer.status_code == status, answer.text
    assert answer.json().keys() == {"msg", "status_code"}
    assert answer.json()["status_code"] == status
    assert word in answer.json()["msg"]


FULL: Json = {
    "name": "whole",
    "description": "everything that a client may say",
    "inputs": [
        {"name": "a", "description": "d", "url": "file:///data/a", "path": "/in/a", "type": "FILE", "streamable": True},
        {"path": "/in/script", "content": "echo hi\n"},
        {"url": "/data/folder", "path": "/in/folder", "type": "DIRECTORY"},
    ],
    "outputs": [
        {"name": "o", "description": "d", "url": "file:///out/o", "path": "/out/o", "type": "FILE"},
        {"url": "file:///out/all", "path": "/out/*", "path_prefix": "/out"},
    ],
    "resources": {"cpu_cores": 2, "preemptible": False, "ram_gb": 1.5, "disk_gb": 2, "zones": ["a", "b"]},
    "executors": [
        {
            "image": "alpine:3", "command": ["cat", "x"], "workdir": "/w", "stdin": "/in/a", "stdout": "/out/o",
            "stderr": "/out/e", "env": {"A": "b"}, "ignore_error": True,
        },
        ECHO,
    ],
    "volumes": ["/vol/a"],
    "tags": {"one": "1", "two": ""},
}  # fmt: skip


class TestCreate:
    def test_only_executors_are_needed(self, alone: httpx.Client, base: str) -> None:
        task = seen(alone, made(alone, base))
        assert task["executors"] == [{**ECHO, "ignore_error": False}]
        assert task["state"] == "QUEUED"
        assert task["creation_time"].endswith("Z")

    def test_everything_that_was_said_is_shown(self, alone: httpx.Client) -> None:
        task = seen(alone, made(alone, **FULL))
        wanted = {**FULL, "inputs": [{"type": "FILE", **input_} for input_ in FULL["inputs"]]}
        wanted["outputs"] = [{"type": "FILE", **output} for output in FULL["outputs"]]
        wanted["resources"] = {**FULL["resources"], "backend_parameters_strict": False}
        wanted["executors"] = [FULL["executors"][0], {**ECHO, "ignore_error": False}]
        assert {name: task[name] for name in wanted} == wanted

    def test_what_only_the_server_says_is_passed_over(self, alone: httpx.Client) -> None:
        name = made(alone, id="mine", state="COMPLETE", creation_time="2001-01-01T00:00:00Z", logs=[{"logs": []}])
        task = seen(alone, name)
        assert name != "mine"
        assert task["state"] == "QUEUED"
        assert task["creation_time"] > "2020"
        assert "logs" not in task

    @pytest.mark.parametrize(
        ("body", "word"),
        [
            ({}, "executors"),
            ({"executors": []}, "at least one"),
            ({"executors": [{"image": "alpine"}]}, "command"),
            ({"executors": [ECHO], "inputs": [{"path": "/a"}]}, "url"),
            ({"executors": [ECHO], "inputs": [{"path": "a", "url": "/a"}]}, "absolute path"),
            ({"executors": [ECHO], "inputs": [{"path": "/a", "url": "ftp://x/y"}]}, "file://"),
            ({"executors": [ECHO], "inputs": [{"path": "/a", "url": "https://elsewhere.example/y"}]}, "staging_hosts"),
            ({"executors": [ECHO], "inputs": [{"path": "/a", "url": "s3://bucket/y"}]}, "bucket"),
            ({"executors": [ECHO], "outputs": [{"path": "/a/*", "url": "/o"}]}, "path_prefix"),
            ({"executors": [ECHO], "tags": {str(n): "x" for n in range(40)}}, "tags"),
        ],
    )
    def test_what_is_wrong_is_said(self, alone: httpx.Client, base: str, body: Json, word: str) -> None:
        refused(alone.post(f"{base}/tasks", json=body), 400, word)

    def test_a_body_that_is_no_json_is_refused(self, alone: httpx.Client, base: str) -> None:
        refused(alone.post(f"{base}/tasks", content=b"{nothing"), 400, "JSON")

    def test_known_backend_parameters_are_obeyed_in_any_case_of_letters(self, alone: httpx.Client) -> None:
        name = made(alone, resources={"backend_parameters": {"Priority": "7", "WALL": "2 h", "max_attempts": "3"}})
        job = alone.get(f"/v1/jobs/{name}").json()
        assert (job["priority"], job["resources"]["wall"], job["max_attempts"]) == (7, 7200, 3)
        assert seen(alone, name)["resources"]["backend_parameters"]["Priority"] == "7"

    def test_unknown_backend_parameters_are_left_out_with_a_warning(self, alone: httpx.Client) -> None:
        name = made(alone, resources={"backend_parameters": {"VmSize": "big", "priority": "1"}})
        task = seen(alone, name)
        assert task["resources"]["backend_parameters"] == {"priority": "1"}
        assert "vmsize" in task["logs"][0]["system_logs"][0]
        assert "system_logs" not in seen(alone, name, "BASIC")["logs"][0]

    @pytest.mark.parametrize(
        ("backend_parameters", "word"),
        [({"VmSize": "big"}, "vmsize"), ({"priority": "high"}, "invalid"), ({"wall": "soon"}, "invalid")],
    )
    def test_strict_backend_parameters_must_be_known(
        self, alone: httpx.Client, backend_parameters: Json, word: str
    ) -> None:
        resources = {"backend_parameters": backend_parameters, "backend_parameters_strict": True}
        refused(alone.post("/v1/tasks", json={"executors": [ECHO], "resources": resources}), 400, word)

    def test_gibibytes_are_what_a_gb_of_memory_means(self, alone: httpx.Client) -> None:
        job = alone.get(f"/v1/jobs/{made(alone, resources={'ram_gb': 1.5, 'cpu_cores': 3})}").json()
        assert job["resources"]["memory"] == 3 << 29
        assert job["resources"]["cpus"] == 3


class TestGet:
    def test_the_least_view_is_the_usual_one(self, alone: httpx.Client, base: str) -> None:
        name = made(alone)
        assert alone.get(f"{base}/tasks/{name}").json() == {"id": name, "state": "QUEUED"}

    def test_the_middle_view_has_no_contents(self, alone: httpx.Client) -> None:
        name = made(alone, inputs=[{"path": "/s", "content": "text"}])
        assert "content" not in seen(alone, name, "BASIC")["inputs"][0]
        assert seen(alone, name)["inputs"][0]["content"] == "text"

    def test_what_did_not_change_is_not_sent_again(self, alone: httpx.Client, base: str) -> None:
        name = made(alone)
        first = alone.get(f"{base}/tasks/{name}")
        again = alone.get(f"{base}/tasks/{name}", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        alone.post(f"{base}/tasks/{name}:cancel")
        assert alone.get(f"{base}/tasks/{name}", headers={"If-None-Match": first.headers["etag"]}).status_code == 200

    @pytest.mark.parametrize("name", ["no-such-task", "x" * 100, "a:b", "%00"])
    def test_an_unknown_task_is_not_found(self, alone: httpx.Client, base: str, name: str) -> None:
        refused(alone.get(f"{base}/tasks/{name}"), 404)
        refused(alone.post(f"{base}/tasks/{name}:cancel"), 404)

    def test_an_unknown_view_is_refused(self, alone: httpx.Client, base: str) -> None:
        refused(alone.get(f"{base}/tasks/{made(alone)}", params={"view": "ALL"}), 400, "view")

    def test_a_job_that_is_no_task_is_none(self, alone: httpx.Client, base: str) -> None:
        body = {"specification": {"command": ["true"]}, "jobs": [{}]}
        name = alone.post("/v1/jobs", json=body).json()["jobs"][0]["id"]
        refused(alone.get(f"{base}/tasks/{name}"), 404)


class TestList:
    def test_pages_have_every_task_once(self, fresh: httpx.Client, base: str) -> None:
        names = [made(fresh, name=f"n{number}") for number in range(7)]
        ids: list[str] = []
        token = ""
        for _ in range(10):
            page = fresh.get(f"{base}/tasks", params={"page_size": 3, "page_token": token}).json()
            assert len(page["tasks"]) <= 3
            assert all(task.keys() == {"id", "state"} for task in page["tasks"])
            ids += [task["id"] for task in page["tasks"]]
            token = page.get("next_page_token", "")
            if not token:
                break
        assert sorted(ids) == sorted(names)

    @pytest.mark.parametrize("size", [0, -1, 2048, "many"])
    def test_pages_have_a_sensible_size(self, fresh: httpx.Client, base: str, size: object) -> None:
        refused(fresh.get(f"{base}/tasks", params={"page_size": str(size)}), 400, "page_size")

    def test_a_token_that_is_none_is_refused(self, fresh: httpx.Client, base: str) -> None:
        refused(fresh.get(f"{base}/tasks", params={"page_token": "nonsense"}), 400)

    def test_no_tasks_is_an_empty_list(self, fresh: httpx.Client, base: str) -> None:
        assert fresh.get(f"{base}/tasks").json() == {"tasks": []}

    @pytest.mark.parametrize("view", ["MINIMAL", "BASIC", "FULL"])
    def test_each_view_is_that_of_the_task(self, fresh: httpx.Client, base: str, view: str) -> None:
        name = made(fresh, inputs=[{"path": "/s", "content": "text"}])
        assert fresh.get(f"{base}/tasks", params={"view": view}).json()["tasks"] == [seen(fresh, name, view)]

    def test_names_are_found_by_how_they_begin(self, fresh: httpx.Client, base: str) -> None:
        made(fresh, name="beta-1")
        name = made(fresh, name="alpha-1")
        page = fresh.get(f"{base}/tasks", params={"name_prefix": "alpha"}).json()
        assert [task["id"] for task in page["tasks"]] == [name]
        assert fresh.get(f"{base}/tasks", params={"name_prefix": "lpha"}).json()["tasks"] == []

    def test_tasks_are_found_by_their_state(self, fresh: httpx.Client, base: str) -> None:
        queued, cancelled = made(fresh, name="a"), made(fresh, name="b")
        fresh.post(f"{base}/tasks/{cancelled}:cancel")
        for state, wanted in {"QUEUED": [queued], "CANCELED": [cancelled], "COMPLETE": [], "PAUSED": []}.items():
            page = fresh.get(f"{base}/tasks", params={"state": state}).json()
            assert [task["id"] for task in page["tasks"]] == wanted, state
        refused(fresh.get(f"{base}/tasks", params={"state": "DONE"}), 400, "state")

    @pytest.mark.parametrize(
        ("keys", "values", "tags", "match"),
        [
            (["foo"], ["bar"], {"foo": "bar"}, True),
            (["foo"], ["bar"], {"foo": "bat"}, False),
            (["foo"], [""], {"foo": ""}, True),
            (["foo", "baz"], ["bar", "bat"], {"foo": "bar", "baz": "bat"}, True),
            (["foo"], [], {"foo": "bar"}, True),
            (["foo", "baz"], ["bar"], {"foo": "bar", "baz": "bat"}, True),
            (["foo"], ["bar"], {}, False),
            (["foo"], [""], {}, False),
            (["odd key!"], ["v"], {"odd key!": "v"}, True),
            (["odd key!"], ["w"], {"odd key!": "v"}, False),
        ],
    )
    def test_tags_are_found_as_the_table_says(
        self, fresh: httpx.Client, keys: list[str], values: list[str], tags: Json, match: bool
    ) -> None:
        name = made(fresh, tags=tags)
        page = fresh.get("/v1/tasks", params={"tag_key": keys, "tag_value": values}).json()
        assert [task["id"] for task in page["tasks"]] == ([name] if match else [])


class TestCancel:
    def test_what_waits_is_cancelled_at_once_and_only_once(self, alone: httpx.Client, base: str) -> None:
        name = made(alone, outputs=[{"path": "/o/x", "url": "/tmp/never"}])  # noqa: S108 - never written
        for _ in range(2):
            answer = alone.post(f"{base}/tasks/{name}:cancel")
            assert (answer.status_code, answer.json()) == (200, {})
            assert seen(alone, name)["state"] == "CANCELED"


class TestAccess:
    @pytest.mark.parametrize(
        ("method", "path"),
        [("GET", "service-info"), ("GET", "tasks"), ("POST", "tasks"), ("GET", "tasks/x"), ("POST", "tasks/x:cancel")],
    )
    def test_nothing_is_open(self, site: Site, base: str, method: str, path: str) -> None:
        answer = httpx.request(method, f"{site.server.url}{base}/{path}")
        refused(answer, 401)
        assert answer.headers["www-authenticate"]

    def test_who_may_only_look_makes_and_cancels_nothing(self, site: Site, alone: httpx.Client, base: str) -> None:
        with site.plain("viewer") as viewer:
            refused(viewer.post(f"{base}/tasks", json={"executors": [ECHO]}), 403)
            refused(viewer.post(f"{base}/tasks/x:cancel"), 403)

    def test_a_task_of_another_tenant_does_not_exist(self, alone: httpx.Client, fresh: httpx.Client, base: str) -> None:
        name = made(alone)
        refused(fresh.get(f"{base}/tasks/{name}"), 404)
        refused(fresh.post(f"{base}/tasks/{name}:cancel"), 404)

    def test_only_the_owner_or_an_operator_cancels(self, site: Site, fresh: httpx.Client, base: str) -> None:
        name = made(fresh)
        tenant = fresh.get(f"/v1/jobs/{name}").json()["tenant"]
        with site.plain(subject="bob", tenant=tenant) as bob:
            refused(bob.post(f"{base}/tasks/{name}:cancel"), 403)
        with site.plain("operator", subject="eve", tenant=tenant) as eve:
            assert eve.post(f"{base}/tasks/{name}:cancel").status_code == 200


def test_the_service_says_what_it_is(site: Site, base: str) -> None:
    with site.plain("viewer") as viewer:
        info = viewer.get(f"{base}/service-info").json()
    assert info["type"] == {"group": "org.ga4gh", "artifact": "tes", "version": "1.1.0"}
    assert {"id", "name", "organization", "version"} <= info.keys()
    assert info["storage"] == ["file:///", "https://127.0.0.1"]
    assert info["tesResources_backend_parameters"] == ["max_attempts", "priority", "wall"]


def test_py_tes_reads_the_service_and_the_list(site: Site) -> None:
    client = site.client(tenant=f"q-{uuid4().hex[:8]}")
    assert client.get_service_info().type["artifact"] == "tes"
    name = client.create_task(tes.Task(executors=[tes.Executor(image="alpine", command=["true"])]))
    assert [task.id for task in client.list_tasks(view="FULL", page_size=5).tasks] == [name]
