"""Callbacks: told until taken, always with the same delivery id, and never a way into the network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest
from tests.speed import clock_limit
from tests.unit.apps.server.asks import problem, read, steer, story, submit, submit_one
from tests.unit.apps.server.callback_listener import Listener, listen
from tests.unit.apps.server.later_clock import LaterClock
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.adapters.httpx import callback_transport
from forestay.adapters.httpx.callback_transport import HttpxCallbackTransport
from forestay.apps.compose.reconciler import ReconcilerComponents
from forestay.ports.errors import Permanent, Transient
from forestay.services.jobs import callback_sender
from forestay.services.jobs.callback_sender import wait_after


async def _ended(server: RunningServer, tenant: str, listener: Listener, **end: Any) -> str:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada, {"callback": listener.url(), "name": "told"})
    pilot = await ScriptedPilot.register(server, tenant)
    assert await pilot.end(await pilot.claim_one(), **end) == ["committed"]
    return job


async def _send(reconciler: ReconcilerComponents, server: RunningServer, clock: LaterClock, ahead: int = 0) -> None:
    clock.ahead += ahead
    await server.refresh()
    await reconciler.callbacks.send_due()


async def test_the_end_of_a_job_is_told(server: RunningServer, tenant: str) -> None:
    async with listen() as listener, server.domain.reconciler() as reconciler:
        job = await _ended(server, tenant, listener, outcome="failure", exit_code=3)
        await _send(reconciler, server, LaterClock())
        (delivered,) = [other_delivered for other_delivered in listener.seen if other_delivered.body["job"] == job]
        assert delivered.path == "/done"
        assert delivered.headers["content-type"] == "application/json"
        assert delivered.headers["forestay-delivery"] == delivered.body["delivery"]
        assert delivered.headers["host"] == f"127.0.0.1:{listener.port}"
        assert "authorization" not in delivered.headers
        known = {name: delivered.body[name] for name in ("name", "state", "attempt", "exit_code")}
        assert known == {"name": "told", "state": "failed", "attempt": 1, "exit_code": 3}
        shown = await read(server.person("viewer", tenant=tenant), job)
        assert shown["callback"] == {"url": listener.url(), "tries": 1, "done": True}
        await _send(reconciler, server, LaterClock())
        assert len(listener.seen) == 1
        assert (await story(server.person("viewer", tenant=tenant), job))[-1]["event"] == "notify"


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled", "forced_complete"])
async def test_every_final_state_is_told(server: RunningServer, tenant: str, ending: str) -> None:
    operator = server.person("operator", tenant=tenant)
    async with listen() as listener, server.domain.reconciler() as reconciler:
        job = await submit_one(operator, {"callback": listener.url()})
        await _send(reconciler, server, LaterClock())
        assert listener.seen == [], "nothing is told before the end"
        if ending == "cancelled":
            await steer(operator, job, "cancel")
        elif ending == "forced_complete":
            await steer(operator, job, "force-complete", expected_attempt=0, reason="r")
        else:
            pilot = await ScriptedPilot.register(server, tenant)
            await pilot.end(await pilot.claim_one(), outcome="ok" if ending == "completed" else "failure")
        await _send(reconciler, server, LaterClock())
        assert [delivered.body["state"] for delivered in listener.seen] == [ending]


async def test_it_is_told_again_with_the_same_delivery_until_it_is_taken(server: RunningServer, tenant: str) -> None:
    script: tuple[int | str, ...] = (500, "cut", 404, 403, 429, "redirect", 301, 200)
    async with listen(*script) as listener, server.domain.reconciler() as reconciler:
        clock = LaterClock()
        reconciler.callbacks.clock = clock
        job = await _ended(server, tenant, listener)
        viewer = server.person("viewer", tenant=tenant)
        for tries in range(1, len(script) + 1):
            await _send(reconciler, server, clock)
            assert len(listener.seen) == tries
            shown = (await read(viewer, job))["callback"]
            assert (shown["tries"], shown["done"]) == (tries, tries == len(script))
            await _send(reconciler, server, clock)  # too early: nothing is sent
            assert len(listener.seen) == tries
            clock.ahead += wait_after(tries)
        assert {delivered.path for delivered in listener.seen} == {"/done"}, "a redirect is not followed"
        assert len({delivered.headers["forestay-delivery"] for delivered in listener.seen}) == 1
        assert reconciler.callbacks.sent == 1
        await _send(reconciler, server, clock, ahead=86_400_000)
        assert len(listener.seen) == len(script)
        notes = [line["note"] for line in await story(viewer, job) if line["event"] == "notify"]
        assert notes[0] == "try 1: 127.0.0.1 answered 500"
        assert notes[-1] == "taken"


async def test_an_address_that_is_gone_for_good_is_not_called_again(server: RunningServer, tenant: str) -> None:
    async with listen(410, 200) as listener, server.domain.reconciler() as reconciler:
        clock = LaterClock()
        reconciler.callbacks.clock = clock
        job = await _ended(server, tenant, listener)
        await _send(reconciler, server, clock)
        await _send(reconciler, server, clock, ahead=86_400_000)
        assert len(listener.seen) == 1
        shown = (await read(server.person("viewer", tenant=tenant), job))["callback"]
        assert (shown["tries"], shown["done"]) == (1, False)


async def test_waits_grow_and_are_bounded() -> None:
    waits = [wait_after(tries) for tries in range(1, 20)]
    assert waits[:3] == [1000, 2000, 4000]
    assert waits == sorted(waits)
    assert max(waits) == 6 * 3600 * 1000


async def test_a_callback_that_hangs_blocks_nobody(
    local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callback_transport.SECONDS == 5.0
    monkeypatch.setattr(callback_transport, "SECONDS", 1.0)
    allowed = ("127.0.0.1",)
    async with (
        local.domain.server(callback_hosts=allowed) as server,
        local.domain.reconciler(callback_hosts=allowed) as reconciler,
        listen("hang") as hangs,
        listen() as answers,
    ):
        await _ended(server, tenant, hangs)
        await _ended(server, tenant, answers)
        since = time.monotonic()
        await _send(reconciler, server, LaterClock())
        assert 0.9 < time.monotonic() - since < clock_limit(10.0)
        assert len(hangs.seen) == 1
        assert len(answers.seen) == 1
        assert (reconciler.callbacks.sent, reconciler.callbacks.failed) == (1, 1)


async def test_an_endless_answer_is_not_read_to_its_end(local: RunningServer, tenant: str) -> None:
    async with listen("huge") as listener:
        since = time.monotonic()
        await HttpxCallbackTransport(("127.0.0.1",)).post(listener.url(), {"a": 1}, delivery="d")
        assert time.monotonic() - since < clock_limit(4.0)


BAD_ADDRESSES = [
    "file:///etc/passwd",
    "ftp://127.0.0.1/",
    "http://169.254.169.254/latest/meta-data",
    "http://[::1]:80/",
    "http://[::ffff:127.0.0.1]/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://localhost/",
    "http://127.0.0.1.nip.io/",
    "http://user:password@127.0.0.1/",
    "http://127.0.0.1:99999/",
    "http://127.0.0.1\\@evil.example/",
    "http://evil.example/#@127.0.0.1",
    "http://",
    "//127.0.0.1/",
    "http://127.0.0.1/" + "x" * 2000,
    "http://127.0.0.1/\r\nX-Injected: 1",
    "http://127.0.0.1/\0",
    "http://[",
    "http://ünïcode.example/",
]


async def test_addresses_that_may_not_be_called_are_refused_at_once(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    for url in BAD_ADDRESSES:
        body = {"specification": {"command": ["true"]}, "jobs": [{"callback": url}]}
        returned_problem = problem(await ada.post("/v1/jobs", json=body), 422)
        assert returned_problem["errors"][0]["at"] == "body.jobs.0.callback", url


async def test_a_name_that_leads_to_a_private_address_is_not_called(tenant: str) -> None:
    """The name is allowed, but what it resolves to is checked again before each call, and only that is called."""
    async with listen() as listener:
        public = HttpxCallbackTransport(("localhost",))
        assert public.check(f"http://localhost:{listener.port}/") is None
        with pytest.raises(Permanent, match="not a public address"):
            await public.post(f"http://localhost:{listener.port}/", {}, delivery="d")
        assert listener.seen == []
        await HttpxCallbackTransport(("private:localhost",)).post(
            f"http://localhost:{listener.port}/x", {}, delivery="d"
        )
        assert listener.seen[0].headers["host"] == f"localhost:{listener.port}"


async def test_a_host_that_is_no_longer_allowed_is_not_called(local: RunningServer, tenant: str) -> None:
    async with listen() as listener, local.domain.server(callback_hosts=("127.0.0.1",)) as server:
        job = await _ended(server, tenant, listener)
        async with local.domain.reconciler(callback_hosts=("hooks.example",)) as reconciler:
            await _send(reconciler, server, LaterClock())
        assert listener.seen == []
        shown = (await read(server.person("viewer", tenant=tenant), job))["callback"]
        assert (shown["tries"], shown["done"]) == (1, False)


async def test_a_host_that_does_not_resolve_is_tried_again() -> None:
    with pytest.raises(Transient, match="could not be resolved"):
        await HttpxCallbackTransport(("*.invalid",)).post("http://hooks.invalid/", {}, delivery="d")


async def test_hosts_are_allowed_by_name_or_by_domain() -> None:
    hosts = HttpxCallbackTransport(("hooks.example", "*.lab.example"))
    assert hosts.check("https://hooks.example/x") is None
    assert hosts.check("https://a.b.lab.example:8443/x?y=1") is None
    for url in (
        "https://hooks.example.evil/",
        "https://lab.example.evil/",
        "https://xhooks.example/",
        "https://lab.example/",
    ):
        assert hosts.check(url) is not None, url


class _OneIsSilent:
    """A transport on which one receiver never answers."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.begun = 0

    def check(self, _url: str) -> str | None:
        return None

    async def post(self, url: str, body: Mapping[str, object], *, delivery: str) -> None:
        assert delivery
        self.begun += 1
        if "silent" in url:
            await asyncio.Event().wait()
        self.told.append(str(body["job"]))


@pytest.mark.finding("F-D16")
async def test_a_silent_receiver_delays_nobody_else(
    local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even when more of its callbacks are due than one search finds."""
    monkeypatch.setattr(callback_sender, "PAGE", 5)
    transport = _OneIsSilent()
    monkeypatch.setattr(local.services.components, "notify", transport)
    ada = local.person("submitter", tenant=tenant)
    silent = await submit(ada, *[{"callback": "https://silent.example/done"}] * 12)
    (good,) = await submit(ada, {"callback": "https://good.example/done"})
    for job in (*silent, good):
        await steer(ada, job, "cancel")
    async with local.domain.reconciler() as reconciler:
        reconciler.callbacks.notify = transport
        sending = asyncio.create_task(reconciler.callbacks.run())
        try:

            async def told() -> bool:
                return bool((await read(ada, good))["callback"]["done"])

            await until(told, "the callback of the receiver that answers")
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

        async def given_up() -> bool:
            return not reconciler.callbacks._waiting

        await until(given_up, "those who served the receivers to end")
        reconciler.callbacks.clock = LaterClock()
        assert not await reconciler.callbacks.send_due(), "what was taken up is not due for a while"
        reconciler.callbacks.clock = LaterClock(callback_sender.HOLD)
        monkeypatch.setattr(_OneIsSilent, "post", _told)
        while await reconciler.callbacks.send_due():
            pass
        # Other tests of this process leave callbacks that are due by then.
        assert sorted(job for job in transport.told if job in (good, *silent)) == sorted([good, *silent])


async def _told(transport: _OneIsSilent, _url: str, body: Mapping[str, object], *, delivery: str) -> None:
    assert delivery
    transport.told.append(str(body["job"]))
