"""Every act of every page, tried by a browser as each role: done by those who may and refused to all others, and to everybody without the page's own word."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import httpx
import pytest
from tests.system.web.acts import ACTS as NAMED
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.routes import routes_of
from tests.unit.apps.server.running import RunningServer

from forestay.apps.server.http.request_context import WORD_HEADER

WEB = Path(__file__).resolve().parents[5] / "web" / "src"
BROWSED = Path(__file__).resolve().parents[4] / "system" / "web"
PEOPLE = ("viewer", "submitter", "operator", "rule-author", "approver", "administrator")
ALL = frozenset(PEOPLE)
LOOK, SUBMIT = ALL, frozenset({"submitter", "operator", "administrator"})
OPERATE, WRITE = frozenset({"operator", "administrator"}), frozenset({"operator", "rule-author", "administrator"})
AGREE = frozenset({"approver", "administrator"})
ACTS: dict[tuple[str, str], frozenset[str]] = {
    ("DELETE", "/v1/session"): LOOK,
    ("POST", "/v1/approvals/{request}"): AGREE,
    ("POST", "/v1/questions/{question}"): LOOK,
    ("POST", "/v1/safeguards/groups"): OPERATE,
    ("POST", "/v1/runs/{run}/resume"): SUBMIT,
    ("POST", "/v1/runs/{run}/triggers"): SUBMIT,
    ("POST", "/v1/runs/{run}/verbs"): SUBMIT,
    ("POST", "/v1/errors/{fingerprint}/teach"): OPERATE,
    ("POST", "/v1/errors/{fingerprint}/triage"): OPERATE,
    ("POST", "/v1/hosts/{host}/close"): OPERATE,
    ("POST", "/v1/hosts/{host}/open"): OPERATE,
    ("POST", "/v1/inbox/acts"): OPERATE,
    ("POST", "/v1/incidents/{incident}/playbook"): OPERATE,
    ("POST", "/v1/jobs/{job}/cancel"): SUBMIT,
    ("POST", "/v1/jobs/{job}/continue"): SUBMIT,
    ("POST", "/v1/jobs/{job}/hold"): SUBMIT,
    ("POST", "/v1/jobs/{job}/retry"): OPERATE,
    ("POST", "/v1/pilots/drain"): OPERATE,
    ("POST", "/v1/rules/check"): WRITE,
    ("POST", "/v1/rules/test"): LOOK,
    ("POST", "/v1/rules/{level}/{name}"): WRITE,
    ("POST", "/v1/rules/{level}/{name}/proposals/{proposal}/dismiss"): WRITE,
    ("POST", "/v1/rules/{level}/{name}/replay"): WRITE,
    ("POST", "/v1/rules/{level}/{name}/rollback"): WRITE,
    ("POST", "/v1/rules/{level}/{name}/rules/{rule}/state"): WRITE,
}
"""What the pages do, and who may: the table of docs/how-to/pages.md. Said here once more, so that a route whose own check is wrong is found."""
ASKED = re.compile(r'api\.(POST|PUT|PATCH|DELETE)\(\s*"([^"]+)"')


def _address(path: str) -> str:
    return re.sub(r"\{\w+\}", "nothing", path.replace("{level}", "domain"))


async def _session(server: RunningServer, tenant: str, role: str) -> tuple[httpx.AsyncClient, str]:
    """A browser in which somebody is logged in, and its page's word."""
    link = await server.person(role, tenant=tenant, subject=f"a-{role}").post("/v1/logins")
    browser = server.client()
    await browser.get(link.json()["url"].removeprefix(server.services.components.settings.public_url))
    word: str = (await browser.get("/v1/session")).json()["word"]
    return browser, word


def test_the_table_has_every_act_of_the_pages() -> None:
    pairs = {pair for file in WEB.rglob("*.ts*") for pair in ASKED.findall(file.read_text(encoding="utf-8"))}
    assert pairs == set(ACTS)


def test_every_act_is_done_in_a_browser_by_a_test_that_says_so() -> None:
    assert {(act.method, act.route) for act in NAMED.values()} == set(ACTS)
    marks = [
        call
        for file in BROWSED.glob("test_*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "acts"
    ]
    # Whether a test truly does what it says is held where the tests run, by the requests of its browsers.
    assert {ast.literal_eval(node) for call in marks for node in call.args} == set(NAMED)


@pytest.mark.parametrize("role", PEOPLE)
async def test_every_act_as_each_role(local: RunningServer, tenant: str, role: str) -> None:
    browser, word = await _session(local, tenant, role)
    for (method, path), who in ACTS.items():
        for headers in ({}, {WORD_HEADER: word[::-1]}):
            problem(await browser.request(method, _address(path), json={}, headers=headers), 403)
        elsewhere = {WORD_HEADER: word, "Sec-Fetch-Site": "cross-site"}
        problem(await browser.request(method, _address(path), json={}, headers=elsewhere), 401)
        if method == "DELETE":
            continue  # it ends the session, which is tried below
        answer = await browser.request(method, _address(path), json={}, headers={WORD_HEADER: word})
        # Nothing that the empty body speaks of is there, nor a Temporal: who may act is told so, and all others are told nothing.
        expected = {200, 400, 404, 409, 422, 501, 503} if role in who else {403}
        assert answer.status_code in expected, f"{method} {path} as {role}: {answer.status_code} {answer.text}"
    assert (await browser.delete("/v1/session", headers={WORD_HEADER: word})).status_code == 200


async def test_no_other_route_acts_for_a_browser_without_the_word(local: RunningServer, tenant: str) -> None:
    browser, _ = await _session(local, tenant, "administrator")
    tried = 0
    for route in routes_of(local.app):
        for method in sorted((route.methods or set()) - {"GET", "HEAD"}):
            answer = await browser.request(method, _address(route.path), json={})
            assert answer.status_code in (401, 403), f"{method} {route.path}: {answer.status_code}"
            tried += 1
    assert tried > 40
