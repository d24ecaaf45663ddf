"""A browser's session: a link that works once, a cookie that no script and no other site can use, and acts only with the page's own word."""

from __future__ import annotations

import asyncio
from http.cookies import SimpleCookie

import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.later_clock import LaterClock
from tests.unit.apps.server.running import RunningServer, until

from forestay.apps.server.http.request_context import WORD_HEADER, cookie_of
from forestay.ports.operations.identity import Role
from forestay.services.operations.browser_sessions import LINK_SECONDS, SESSION_SECONDS


async def link(server: RunningServer, tenant: str, role: str = "administrator") -> str:
    answer = await server.person(role, tenant=tenant).post("/v1/logins")
    assert answer.status_code == 201
    url: str = answer.json()["url"]
    return url.removeprefix(server.services.components.settings.public_url)


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
    assert "unsafe" not in page.headers["content-security-policy"]
    problem(await local.client().get(where), 401)
    problem(await browser.get(where), 401)


async def test_of_many_who_come_at_once_one_gets_in(local: RunningServer, tenant: str) -> None:
    where = await link(local, tenant)
    answers = await asyncio.gather(*(local.client().get(where) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers).count(200) == 1


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


async def test_a_session_may_what_its_asker_may_and_no_program_may(local: RunningServer, tenant: str) -> None:
    for role, roles in {
        "viewer": {"viewer"},
        "submitter": {"submitter", "viewer", "engine"},
        "approver": {"approver", "viewer"},
    }.items():
        browser = local.client()
        await browser.get(await link(local, tenant, role))
        body = (await browser.get("/v1/session")).json()
        assert (body["tenant"], set(body["roles"])) == (tenant, roles)
    answer = await local.person("administrator", tenant=tenant).post("/v1/logins", json={"look": True})
    await browser.get(answer.json()["url"].removeprefix(local.services.components.settings.public_url))
    assert (await browser.get("/v1/session")).json()["roles"] == ["viewer"]


async def test_a_session_does_not_outlive_its_askers_token(local: RunningServer, tenant: str) -> None:
    short = local.services.components.identity.issue(
        subject="ada", tenant=tenant, roles=frozenset({Role.OPERATOR}), seconds=900
    )
    made = (await local.client(short).post("/v1/logins")).json()
    browser = local.client()
    await browser.get(made["url"].removeprefix(local.services.components.settings.public_url))
    token = browser.cookies[cookie_of(local.app.state.context)]
    identity = local.services.components.identity
    assert identity.verify(token).expires <= identity.verify(short).expires


async def test_an_act_needs_the_pages_own_word(local: RunningServer, tenant: str) -> None:
    browser, other = local.client(), local.client()
    await browser.get(await link(local, tenant))
    await other.get(await link(local, tenant))
    word = (await browser.get("/v1/session")).json()["word"]
    foreign = (await other.get("/v1/session")).json()["word"]
    body = {"specification": {"command": ["true"]}, "jobs": [{}]}
    for other_headers in ({}, {WORD_HEADER: ""}, {WORD_HEADER: "x"}, {WORD_HEADER: foreign}, {WORD_HEADER: word[:-1]}):
        problem(await browser.post("/v1/jobs", json=body, headers=other_headers), 403)
        problem(await browser.delete("/v1/session", headers=other_headers), 403)
    for site in ("cross-site", "same-site"):
        headers = {WORD_HEADER: word, "Sec-Fetch-Site": site}
        problem(await browser.post("/v1/jobs", json=body, headers=headers), 401)
    good = await browser.post("/v1/jobs", json=body, headers={WORD_HEADER: word, "Sec-Fetch-Site": "same-origin"})
    assert good.status_code == 201
    # Who has a token of their own says no word, and is told none.
    assert (await local.person("viewer", tenant=tenant).get("/v1/session")).json()["word"] is None


async def test_logging_out_takes_the_cookie_away(local: RunningServer, tenant: str) -> None:
    browser = local.client()
    await browser.get(await link(local, tenant))
    word = (await browser.get("/v1/session")).json()["word"]
    assert (await browser.delete("/v1/session", headers={WORD_HEADER: word})).json() == {"ended": True}
    problem(await browser.get("/v1/session"), 401)


async def test_another_site_cannot_make_a_browser_ask(local: RunningServer, tenant: str) -> None:
    browser = local.client()
    await browser.get(await link(local, tenant))
    for site in ("cross-site", "same-site"):
        problem(await browser.get("/v1/jobs", headers={"Sec-Fetch-Site": site}), 401)
    assert (await browser.get("/v1/jobs", headers={"Sec-Fetch-Site": "same-origin"})).status_code == 200
    problem(await browser.get("/v1/jobs", headers={"Authorization": "Bearer nothing"}), 401)


async def test_the_secret_is_not_kept(local: RunningServer, tenant: str) -> None:
    once = (await link(local, tenant)).partition("=")[2]
    kept = await local.services.components.documents.find("login")
    assert kept
    assert once not in str(kept)


async def test_a_person_who_is_not_logged_in_is_told_how(local: RunningServer) -> None:
    problem(await local.client().get("/"), 401)
    async with http_client(local.url) as stranger:
        for path in ("/", "/inbox", "/incidents/<script>"):
            answer = await stranger.get(path, headers={"Accept": "text/html"})
            assert answer.status_code == 401
            assert "forestay link" in answer.text
            assert "<script" not in answer.text


async def test_a_file_is_served_by_its_plain_name_alone(local: RunningServer, tenant: str) -> None:
    person = local.person("viewer", tenant=tenant)
    for name in ("nothing.js", "..%2findex.html", ".hidden.js", "%2e%2e%2f%2e%2e%2fdesk.py", "x.py"):
        assert (await person.get(f"/assets/{name}")).status_code == 404


async def test_without_a_provider_there_is_no_log_in_by_one(local: RunningServer) -> None:
    for path in ("/login/provider", "/login/back?code=x&state=y"):
        problem(await local.client().get(path), 404)


@pytest.mark.finding("F-C4")
async def test_log_out_ends_the_session_at_every_server(local: RunningServer, tenant: str) -> None:
    browser = local.client()
    await browser.get(await link(local, tenant))
    token = browser.cookies[cookie_of(local.app.state.context)]
    word = (await browser.get("/v1/session")).json()["word"]
    kept = local.client(token)
    assert (await kept.get("/v1/session")).status_code == 200
    async with local.domain.server() as beside:
        elsewhere = beside.client(token)
        assert (await elsewhere.get("/v1/session")).status_code == 200
        async with kept.stream("GET", "/v1/events") as stream:
            assert stream.status_code == 200
            assert (await browser.delete("/v1/session", headers={WORD_HEADER: word})).status_code == 200
            assert "revoked" in problem(await kept.get("/v1/session"), 401)["detail"]

            async def refused() -> bool:
                return (await elsewhere.get("/v1/session")).status_code == 401

            await until(refused, "the other server's refusal")
    async with local.domain.server() as later:

        async def refused_later() -> bool:
            return (await later.client(token).get("/v1/session")).status_code == 401

        await until(refused_later, "the refusal of a server that starts afterwards")
    assert (await local.person("administrator", tenant=tenant).get("/v1/session")).status_code == 200


@pytest.mark.finding("F-C4")
async def test_the_tokens_of_a_person_can_be_taken_back(local: RunningServer, tenant: str) -> None:
    domain = local.domain
    token = domain.token("submitter", tenant=tenant, subject="bob", seconds=86_400 * 300)
    namesake = local.client(domain.token("submitter", tenant=f"{tenant}-x", subject="bob"))
    bob, operator = local.client(token), local.person("operator", tenant=tenant)
    chief = local.person("administrator", tenant=tenant)
    invited = (await bob.post("/v1/logins")).json()["url"]
    problem(await operator.post("/v1/people/bob/revoke", json={"reason": "x"}), 403)
    problem(await chief.post("/v1/people/bob/revoke", json={"reason": ""}), 422)
    assert (await chief.post("/v1/people/bob/revoke", json={"reason": "lost laptop"})).status_code == 200
    problem(await bob.get("/v1/session"), 401)
    problem(await local.client().get(invited.removeprefix(local.services.components.settings.public_url)), 401)
    assert (await namesake.get("/v1/session")).status_code == 200, "of another tenant"
    assert (await chief.get("/v1/session")).status_code == 200
    (entry,) = [entry for entry in (await chief.get("/v1/audit")).json()["entries"] if entry["what"] == "revoke-tokens"]
    assert (entry["on"], entry["why"]) == ("bob", "lost laptop")

    async def good_again() -> bool:
        fresh = local.client(domain.token("submitter", tenant=tenant, subject="bob"))
        return (await fresh.get("/v1/session")).status_code == 200

    await until(good_again, "a token of a later second")
    problem(await bob.get("/v1/session"), 401)
