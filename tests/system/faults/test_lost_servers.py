"""Servers that are killed while they answer, get other keys while jobs run, and have no memory or processes left. `just faults` runs it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
from tests import servers
from tests.live.run_site import new_namespace
from tests.system.matrix.room import room
from tests.system.matrix.site import FailureSite, failure_site
from tests.system.matrix.site import until as patiently
from tests.system.wes.flows import LONG
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

from forestay.apps.server.http.request_context import WORD_HEADER
from forestay.client import ApiError, ForestayClient, Unavailable, wait
from forestay.client.api.schemas import NewJob, SpecificationJson

pytestmark = [pytest.mark.slow, pytest.mark.pair]

KILLS = int(os.environ.get("FORESTAY_KILLS", "50"))
TASK = {"executors": [{"image": "alpine", "command": ["echo", "hello"]}]}
TES, WES = "/ga4gh/tes/v1/tasks", "/ga4gh/wes/v1/runs"
HELD = "hold"
ROTATIONS = 5
PATIENCE = 300.0

Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


@dataclass(eq=False)
class Doors:
    """One server after the other at one address, and who asks there."""

    running: Processes
    server: Started
    tenant: str
    asked_again: int = 0
    """How many calls were broken off by a kill, or found nobody."""
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    async def kill(self) -> None:
        """kill -9, and another takes its place."""
        self.server.kill()
        self.server = await self.running.server(port=urlsplit(self.server.url).port or 0)

    async def answered(self, client: httpx.AsyncClient, ask: Ask) -> Any:
        """Ask until there is an answer, as a client does that retries."""
        for _ in range(10_000):
            with contextlib.suppress(httpx.HTTPError):
                answer = await ask(client)
                if answer.status_code < 500:
                    assert answer.is_success, answer.text
                    return answer.json()
            self.asked_again += 1
            await asyncio.sleep(0.05)
        raise AssertionError("nobody answers")

    async def browser(self) -> tuple[httpx.AsyncClient, str]:
        """A browser in which an operator is logged in, and its page's word."""
        link = await self.running.client(self.server, "operator", tenant=self.tenant).post("/v1/logins")
        browser = http_client(self.server.url, None)
        self.running.clients.append(browser)
        await browser.get(urlsplit(link.json()["url"])._replace(scheme="", netloc="").geturl())
        return browser, (await browser.get("/v1/session")).json()["word"]


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    namespace = await new_namespace()
    async with (
        store_room("sqlite", tmp_path) as url,
        processes(
            Domain(url, tmp_path), tmp_path, temporal=servers.temporal(), temporal_namespace=namespace
        ) as running,
    ):
        yield Doors(running, await running.server(), f"t-{uuid4().hex[:8]}")


@pytest.mark.live
async def test_who_answers_tes_wes_and_the_pages_is_killed_and_nothing_is_made_twice(doors: Doors) -> None:
    """Each kill meets a task, a run and an act of a page on their way; who asks again with the same key gets the same."""
    person = doors.running.client(doors.server, "submitter", tenant=doors.tenant)
    browser, word = await doors.browser()
    spec = {"name": "shown on a page", "command": ["true"]}
    made = await person.post("/v1/jobs", json={"specification": spec, "jobs": [{}] * KILLS})
    jobs = [job["id"] for job in made.json()["jobs"]]
    form = {"workflow_type": "FORESTAY", "workflow_type_version": "1", "workflow_url": "flow.yaml"}
    tasks, runs, broken = [], [], 0
    for turn, job in enumerate(jobs):
        key = {"Idempotency-Key": f"key-{turn}"}
        flow = [("workflow_attachment", ("flow.yaml", LONG.encode()))]
        before = doors.asked_again
        asked = asyncio.gather(
            doors.answered(person, lambda to, key=key: to.post(TES, json=TASK, headers=key)),  # type: ignore[misc]
            doors.answered(person, lambda to, key=key, flow=flow: to.post(WES, data=form, files=flow, headers=key)),  # type: ignore[misc]
            doors.answered(
                browser,
                lambda to, job=job: to.post(f"/v1/jobs/{job}/hold", json={}, headers={WORD_HEADER: word}),  # type: ignore[misc]
            ),
        )
        await asyncio.sleep(random.uniform(0, 0.1))
        await doors.kill()
        task, run, held = await asked
        broken += doors.asked_again > before
        tasks.append(task["id"])
        runs.append(run["run_id"])
        assert held["held"] is True
    assert broken > KILLS / 4, "hardly a kill met anything"
    assert len(set(tasks)) == len(set(runs)) == KILLS
    assert sorted(await _listed(person, TES, "tasks", "id")) == sorted(tasks)
    assert sorted(await _listed(person, WES, "runs", "run_id")) == sorted(runs)
    for job in jobs:
        story = (await person.get(f"/v1/jobs/{job}/story")).json()["story"]
        assert [line["event"] for line in story].count(HELD) == 1, story
    for turn in range(KILLS):
        again = await person.post(TES, json=TASK, headers={"Idempotency-Key": f"key-{turn}"})
        assert again.json()["id"] == tasks[turn]


async def _listed(person: httpx.AsyncClient, path: str, what: str, name: str) -> list[str]:
    result: list[str] = []
    token = ""
    while True:
        page = (await person.get(path, params={"page_size": 100, "page_token": token})).json()
        result += [entry[name] for entry in page[what]]
        token = page.get("next_page_token") or ""
        if not token:
            return result


async def test_keys_are_replaced_while_jobs_run_and_no_job_notices(tmp_path: Path) -> None:
    """The signing key is replaced step by step, the servers started anew at each; a pilot's short-lived token goes over to the new key by itself."""
    async with (
        store_room("sqlite", tmp_path) as url,
        processes(Domain(url, tmp_path), tmp_path, token_seconds=20, lease=60) as running,
    ):
        server = await running.server()
        port = urlsplit(server.url).port or 0
        running.reconciler()
        tenant, gate, key = "rotated", tmp_path / "gate", tmp_path / "signing-key"
        running.pilot(tenant, server, slots=4)
        person = running.client(server, "submitter", tenant=tenant)
        begun = tmp_path / "begun"
        begun.mkdir()
        waits = f"touch {begun}/$$; while ! test -e {gate}; do sleep 0.1; done"
        spec = {"name": "long", "command": ["sh", "-c", waits]}
        jobs = [
            job["id"]
            for job in (await person.post("/v1/jobs", json={"specification": spec, "jobs": [{}] * 4})).json()["jobs"]
        ]

        async def all_in(state: str) -> bool:
            reader = running.client(server, "submitter", tenant=tenant)
            bodies = [(await reader.get(f"/v1/jobs/{job}")).json() for job in jobs]
            return all(body["state"] == state for body in bodies)

        async def all_begun() -> bool:
            return len(list(begun.iterdir())) == len(jobs)

        await until(all_begun, "all to run on their host, and not for the servers alone", PATIENCE)
        for _ in range(ROTATIONS):
            old, new = key.read_text().split()[0], secrets.token_hex(32)
            for lines in ((old, new), (new, old), (new,)):
                if lines == (new,):
                    # The old key goes when every token that it signed has been renewed or has ended.
                    await _renewed(running, server, tenant)
                key.write_text("\n".join(lines) + "\n")
                server.kill()
                server = await running.server(port=port)
        gate.touch()
        await until(lambda: all_in("completed"), "all to end", PATIENCE)
        reader = running.client(server, "submitter", tenant=tenant)
        for job in jobs:
            body = (await reader.get(f"/v1/jobs/{job}")).json()
            assert (body["attempt"], body["releases"], body["failures"]) == (1, 0, 0)


async def _renewed(running: Processes, server: Started, tenant: str) -> None:
    """Wait until the pilot has had time for a heartbeat and a new token: as long as a token is good."""
    operator = running.client(server, "operator", tenant=tenant)
    give_up = asyncio.get_running_loop().time() + 25

    async def passed() -> bool:
        assert [pilot["state"] for pilot in (await operator.get("/v1/pilots")).json()["pilots"]] == ["alive"]
        return asyncio.get_running_loop().time() > give_up

    await until(passed, "the tokens of the old key to end", PATIENCE)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FailureSite]:
    async with failure_site(tmp_path) as running:
        yield running


SHORT: SpecificationJson = {"name": "short", "command": ["sh", "-c", "sleep 0.1"]}


def _submit(client: ForestayClient, many: int, key: str) -> list[str]:
    return [
        accepted_json["id"] for accepted_json in client.submit([cast(NewJob, {}) for _ in range(many)], SHORT, key=key)
    ]


def _memory(pid: int) -> Callable[[], None]:
    """No more memory from now on; calling what this gives back ends it."""
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (used, before[1]))
    return lambda: resource.prlimit(pid, resource.RLIMIT_AS, before) and None


def _processes(pid: int) -> Callable[[], None]:
    """No more processes or threads from now on."""
    first, second = Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")
    root = first if first.is_dir() else second
    group = root / f"forestay-{uuid4().hex[:8]}"
    group.mkdir()
    (group / "cgroup.procs").write_text(str(pid))
    (group / "pids.max").write_text((group / "pids.current").read_text())

    def end() -> None:
        (group / "pids.max").write_text("max")
        (root / "cgroup.procs").write_text(str(pid))
        group.rmdir()

    return end


@pytest.mark.parametrize("want", [_memory, _processes], ids=["memory", "processes"])
async def test_a_server_in_want_loses_nothing_it_accepted(
    site: FailureSite, want: Callable[[int], Callable[[], None]]
) -> None:
    """It may refuse and even end; what it took is there, and what it did not answer is made once at most."""

    def scenario() -> None:
        with room(site, failing=False) as where:
            accepted = _submit(where.client, 5, "before")
            plenty = want(site.server.process.pid)
            asked, answered = [f"in need {turn}" for turn in range(10)], {}
            for key in asked:
                with site.client_at(site.server.url, where.tenant) as late, contextlib.suppress(ApiError, Unavailable):
                    answered[key] = _submit(late, 100, key)
            with contextlib.suppress(OSError, ProcessLookupError):
                plenty()
            if site.server.process.poll() is not None:
                site.start_server()  # as whoever looks after it would
            with site.client_at(site.server.url, where.tenant) as again:
                for key in asked:
                    made = _submit(again, 100, key)
                    assert answered.get(key, made) == made
                    accepted += made
            where.host("plenty", cpus="64", slots="16")
            with site.client(where.tenant, "operator", "submitter") as reader:
                known: Any = wait(reader, accepted, timeout=PATIENCE).known
                assert {known[name]["state"] for name in accepted} == {"completed"}
                assert len(set(accepted)) == 5 + 100 * len(asked)
                patiently(lambda: reader.find_jobs({"name": "short", "state": "completed"}).jobs, "the list")

    await asyncio.to_thread(scenario)
