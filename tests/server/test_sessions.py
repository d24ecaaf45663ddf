"""A browser's session: a link that works once, a cookie that no script and no other site can use, and that can only look."""

from __future__ import annotations

import asyncio
from http.cookies import SimpleCookie

import pytest
from tests.server.asks import problem
from tests.server.later_clock import LaterClock
from tests.server.running import RunningServer

from holdfast.apps.server.desk import cookie_of
from holdfast.services.open_sessions import LINK_SECONDS, SESSION_SECONDS


async def link(server: RunningServer, tenant: str, role: str = "administrator") -> str:
    answer = await server.person(role, tenant=tenant).post("/v1/logins")
    assert answer.status_code == 201
    url: str = answer.json()["url"]
    return url.removeprefix(server.services.parts.settings.public_url)


async def test_a_link_logs_in_once(local: RunningServer, tenant: str) -> None:
    where = await link(local, tenant)
    browser = local.client()
    answer = await browser.get(where)
    assert answer.status_code == 200
    (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert cookie["httponly"]
    assert cookie["samesite"].lower() == "strict"
    assert (cookie["path"], cookie["max-age"]) == ("/", str(SESSION_SECONDS))
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    page = await browser.get("/")
    assert page.status_code == 200
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert tenant in page.text
    problem(await local.client().get(where), 401)
    problem(await browser.get(where), 401)


async def test_of_many_who_come_at_once_one_gets_in(local: RunningServer, tenant: str) -> None:
    where = await link(local, tenant)
    answers = await asyncio.gather(*(local.client().get(where) for _ in range(8)))
    assert sorted(one.status_code for one in answers).count(200) == 1


async def test_a_link_expires(local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = await link(local, tenant)
    monkeypatch.setattr(local.services.sessions, "clock", LaterClock(1000 * LINK_SECONDS))
    problem(await local.client().get(where), 401)


async def test_what_is_no_link(local: RunningServer) -> None:
    for what in ("", "?once=", "?once=abc", "?once=" + "0" * 64):
        answer = await local.client().get(f"/login{what}")
        problem(answer, 401)
        assert "set-cookie" not in answer.headers
    problem(await local.client().get("/login?once=" + "x" * 300), 422)
    problem(await local.client().post("/login"), 405)


async def test_a_session_looks_and_does_nothing_else(local: RunningServer, tenant: str) -> None:
    browser = local.client()
    await browser.get(await link(local, tenant))
    assert (await browser.get("/v1/jobs")).status_code == 200
    told = (await browser.get("/v1/status")).json()["you"]
    assert (told["tenant"], told["roles"]) == (tenant, ["viewer"])
    for path in ("/v1/jobs", "/v1/logins", "/v1/flows", "/v1/pilots"):
        problem(await browser.post(path, json={}), 401)
    token = browser.cookies[cookie_of(local.app.state.desk)]
    problem(await local.client(token).post("/v1/jobs", json={"jobs": []}), 403)


async def test_another_site_cannot_make_a_browser_ask(local: RunningServer, tenant: str) -> None:
    browser = local.client()
    await browser.get(await link(local, tenant))
    for site in ("cross-site", "same-site"):
        problem(await browser.get("/v1/jobs", headers={"Sec-Fetch-Site": site}), 401)
    assert (await browser.get("/v1/jobs", headers={"Sec-Fetch-Site": "same-origin"})).status_code == 200
    problem(await browser.get("/v1/jobs", headers={"Authorization": "Bearer nothing"}), 401)


async def test_the_secret_is_not_kept(local: RunningServer, tenant: str) -> None:
    once = (await link(local, tenant)).partition("=")[2]
    kept = await local.services.parts.slips.find("login")
    assert kept
    assert once not in str(kept)


async def test_a_page_shows_names_as_text(local: RunningServer) -> None:
    problem(await local.client().get("/"), 401)
    page = await local.person("viewer", tenant="a+b").get("/")
    assert "a+b" in page.text
    assert "<script" not in page.text
