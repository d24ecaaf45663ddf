"""A run in a notebook: what it asks the server for, what it waits for, what it shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from forestay.client import ForestayClient, RunFailed, RunHandle, TimedOut, start_flow

TEXT = "forestay: 1\nname: two\ntasks:\n  a: {command: [x]}\n  b: {command: [x], after: a}\n"
TASK: dict[str, object] = {"round": 1, "count": 1, "well": 0, "bad": 0, "exit_code": None, "reason": "", "holders": []}


class Api:
    """A server with one run, which ends when it has been asked so often."""

    def __init__(self, *, asks: int = 0, state: str = "completed", text: str = TEXT, name: str = "two") -> None:
        self.asks = asks
        self.state = state
        self.text = text
        self.name = name
        self.got: list[tuple[str, str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.got.append((request.method, request.url.path, body))
        match request.method, request.url.path:
            case "POST", "/v1/flows":
                return httpx.Response(201, json={"version": "f" * 64, "name": self.name})
            case "POST", "/v1/runs":
                return httpx.Response(201, json={"id": "c1", "created": True})
            case "GET", "/v1/runs/c1":
                self.asks -= 1
                return httpx.Response(200, json=self.run(ended=self.asks < 0))
            case "GET", path if path.startswith("/v1/flows/"):
                return httpx.Response(
                    200, json={"version": "f" * 64, "name": self.name, "text": self.text, "holders": []}
                )
            case "POST", "/v1/runs/c1/verbs":
                return httpx.Response(200, json={"id": "v", "accepted": True, "detail": ""})
        return httpx.Response(404, json={"detail": "no such thing"})

    def run(self, *, ended: bool) -> dict[str, Any]:
        states = (
            ("completed", "failed" if self.state == "failed" else "completed") if ended else ("completed", "running")
        )
        tasks = [{"id": name, "task": name, "state": state, **TASK} for name, state in zip("ab", states, strict=True)]
        return {
            "id": "c1", "owner": "ada", "name": self.name, "version": "f" * 64, "state": self.state if ended else "running",
            "started": "2026-01-31T00:00:00Z", "ended": "2026-01-31T00:00:01Z" if ended else None, "params": {}, "phase": "running",
            "outcome": None, "reason": "b: <b>exit code 1" if ended and self.state == "failed" else "",
            "outputs": {"n": 1} if ended and self.state == "completed" else {}, "holders": [], "tasks": tasks, "compensations": 0, "waits": [], "schedule": None,
        }  # fmt: skip


def handle(api: Api) -> RunHandle:
    return RunHandle(client(api), "c1")


def client(api: Callable[[httpx.Request], httpx.Response]) -> ForestayClient:
    return ForestayClient("http://here", "token", transport=httpx.MockTransport(api))


def test_it_waits_for_the_end() -> None:
    api = Api(asks=3)
    pauses: list[float] = []
    assert handle(api).wait(sleep=pauses.append)["state"] == "completed"
    assert len(pauses) == 3
    assert pauses == sorted(pauses)
    assert handle(Api()).result() == {"n": 1}


def test_a_run_that_failed_raises_and_one_that_goes_on_times_out() -> None:
    with pytest.raises(RunFailed, match="was failed: b: <b>exit code 1"):
        handle(Api(state="failed")).result()
    with pytest.raises(TimedOut, match="still running"):
        handle(Api(asks=1000)).wait(0.0)


def test_a_notebook_shows_progress_and_a_picture() -> None:
    html = handle(Api(asks=1))._repr_html_()
    root = ElementTree.fromstring(html)  # noqa: S314 - our own
    assert "1 of 2 ended; running" in html
    assert root.find(".//{http://www.w3.org/2000/svg}svg") is not None
    assert "b (job, after a): running." in html


def test_what_it_shows_is_escaped() -> None:
    html = handle(Api(state="failed", name="<script>"))._repr_html_()
    ElementTree.fromstring(html)  # noqa: S314
    assert "<script>" not in html
    assert "<b>" not in html


def test_a_python_flow_is_drawn_by_its_tasks() -> None:
    html = handle(Api(text="@flow\nasync def two(): ...\n"))._repr_html_()
    assert "a (job): completed." in html


def test_a_server_that_does_not_know_it_is_shown_too() -> None:
    gone = RunHandle(client(Api()), "c2")
    assert "no such thing" in gone._repr_html_()


def test_flows_are_started_by_file_text_name_or_version(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(TEXT)
    for flow in (file, str(file), TEXT):
        api = Api()
        assert start_flow(flow, {"n": 1}, client=client(api)).id == "c1"
        assert api.got[0][2] == {"text": TEXT}
        assert api.got[1][2] == {"flow": "f" * 64, "params": {"n": 1}}
    for flow in ("until_converged", "f" * 64):
        api = Api()
        start_flow(flow, client=client(api)).verb("suspend", reason="lunch")
        assert api.got[0][1:] == ("/v1/runs", {"flow": flow, "params": {}})
        assert api.got[1][2]["verb"] == "suspend"
