"""Tokens and log-ins of a real provider of OpenID Connect, and what must not pass for one."""

from __future__ import annotations

import base64
import hmac
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import ECKey
from tests.system.identity.oidc_provider import OidcProvider, installed, new_key, walk
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.later_clock import LaterClock
from tests.unit.apps.server.routes import routes_of
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.apps.server.store_room import store_room

from forestay.adapters.prometheus.metrics import Metrics, Sample
from forestay.apps.config.settings import load
from forestay.apps.metrics_endpoint import metrics_endpoint
from forestay.apps.server.http.request_context import MAX_TOKEN, WORD_HEADER, cookie_of
from forestay.ports.errors import Permanent
from forestay.services.operations import oidc_provider

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
async def provider(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OidcProvider]:
    installed()
    provider = OidcProvider(tmp_path_factory.mktemp("provider"))
    await provider.start()
    try:
        yield provider
    finally:
        await provider.stop()


@pytest.fixture(scope="module")
async def server(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """A server that takes the provider's word."""
    state = tmp_path_factory.mktemp("oidc")
    async with store_room("sqlite", state) as url, Domain(url, state).server(oidc=provider.table()) as running:
        yield running


async def test_a_token_of_the_provider_is_taken_with_its_tenant_and_roles(
    server: RunningServer, provider: OidcProvider
) -> None:
    robot = server.client(await provider.robot_token())
    you = (await robot.get("/v1/status")).json()["you"]
    assert you == {"subject": "robot", "tenant": "physics", "roles": ["operator"]}
    made = await robot.post("/v1/jobs", json={"specification": {"command": ["true"]}, "jobs": [{}]})
    assert made.status_code == 201
    # What it may not, it may not: only administrators have this one.
    problem(await robot.post("/v1/pilots", json={"host": "n"}), 403)
    other = server.person("administrator", tenant="chemistry")
    problem(await other.get(f"/v1/jobs/{made.json()['jobs'][0]['id']}"), 404)


def _unsigned(provider: OidcProvider) -> str:
    head, body, _ = provider.forged().split(".")
    named = json.loads(base64.urlsafe_b64decode(head + "=="))
    none = base64.urlsafe_b64encode(json.dumps(named | {"alg": "none"}).encode()).decode().rstrip("=")
    return f"{none}.{body}."


def _by_public_key(provider: OidcProvider) -> str:
    """The oldest trick: the public key, which everybody has, taken for the secret of a symmetric signature."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")

    claims = {"aud": "forestay", "sub": "ada", "tenant": "physics", "roles": ["administrator"], "exp": 1 << 35}
    signed = f"{part(json.dumps({'alg': 'HS256', 'kid': 'first'}).encode())}.{part(json.dumps(claims).encode())}"
    return f"{signed}.{part(hmac.digest(provider.key.as_pem(private=False), signed.encode(), 'sha256'))}"


def _own_key_in_head(provider: OidcProvider) -> str:
    own = new_key("first")
    return provider.forged(key=own, head={"jwk": own.as_dict(private=False), "jku": "http://127.0.0.1:9/keys"})


NOW = int(time.time())
BAD: dict[str, Callable[[OidcProvider], str]] = {
    "alg none": _unsigned,
    "HS256 by the public key": _by_public_key,
    "a key of the forger's own": lambda provider: provider.forged(key=new_key("first")),
    "a key in the head": _own_key_in_head,
    "an algorithm that is not allowed": lambda provider: provider.forged(head={"alg": "RS512"}),
    "a key of another kind": lambda provider: provider.forged(
        key=ECKey.generate_key("P-256", {"kid": "first"}), head={"alg": "ES256"}
    ),
    "another issuer": lambda provider: provider.forged(iss="https://login.example.org"),
    "the issuer with a stroke": lambda provider: provider.forged(iss=provider.issuer + "/"),
    "no issuer": lambda provider: provider.forged(iss=None),
    "another audience": lambda provider: provider.forged(aud="another-service"),
    "no audience": lambda provider: provider.forged(aud=None),
    "an empty list of audiences": lambda provider: provider.forged(aud=[]),
    "expired": lambda provider: provider.forged(exp=NOW - 3600),
    "expired, by a little more than the leeway": lambda provider: provider.forged(exp=NOW - 62),
    "no end": lambda provider: provider.forged(exp=None),
    "an end in words": lambda provider: provider.forged(exp="never"),
    "not yet good": lambda provider: provider.forged(nbf=NOW + 3600),
    "made in the future": lambda provider: provider.forged(iat=NOW + 3600),
    "an unknown key": lambda provider: provider.forged(head={"kid": "second"}),
    "a path for a key": lambda provider: provider.forged(head={"kid": "../../../../dev/null"}),
    "a question to a database for a key": lambda provider: provider.forged(head={"kid": "x' UNION SELECT 'k"}),
    "a name of a key with 3,000 characters": lambda provider: provider.forged(head={"kid": "k" * 3000}),
    "no tenant": lambda provider: provider.forged(tenant=None),
    "an empty tenant": lambda provider: provider.forged(tenant=""),
    "two tenants": lambda provider: provider.forged(tenant=["physics", "chemistry"]),
    "a tenant that is no name": lambda provider: provider.forged(tenant="../physics"),
    "no subject": lambda provider: provider.forged(sub=None),
    "a subject that is no name": lambda provider: provider.forged(sub="ada\n"),
    "another kind of token": lambda provider: provider.forged(head={"typ": "logout+jwt"}),
    "too large": lambda provider: provider.forged(padding="x" * MAX_TOKEN),
    "changed": lambda provider: provider.forged()[:-6] + "AAAAAA",
    "five parts": lambda provider: provider.forged() + ".a.b",
    "a list for a head": lambda provider: "W10.e30.AAAA",
}


@pytest.mark.parametrize("what", BAD)
async def test_what_is_no_token_of_the_provider_is_refused(
    server: RunningServer, provider: OidcProvider, what: str
) -> None:
    problem(await server.client(BAD[what](provider)).get("/v1/events"), 401)


async def test_every_route_refuses_a_token_of_another_issuer(server: RunningServer, provider: OidcProvider) -> None:
    foreign = server.client(provider.forged(iss="https://login.example.org"))
    asked = 0
    for route in routes_of(server.app):
        if route.path.startswith("/login"):
            continue
        path = route.path.replace("{job}", "some-job").replace("{pilot}", "p-someone")
        for method in sorted(route.methods or ()):
            problem(await foreign.request(method, path), 401)
            asked += 1
    assert asked > 100


async def test_who_is_known_and_has_no_role_may_do_nothing(server: RunningServer, provider: OidcProvider) -> None:
    guest = server.client(provider.forged(groups=["somebody"]))
    for path in ("/v1/jobs", "/v1/events", "/v1/session", "/metrics", "/"):
        problem(await guest.get(path), 403)


async def test_leeway_is_for_clocks_that_differ(server: RunningServer, provider: OidcProvider) -> None:
    now = int(time.time())
    good: list[dict[str, Any]] = [{}, {"exp": now - 20}, {"nbf": now + 30}, {"iat": now + 30}]
    for changes in good:
        assert (await server.client(provider.forged(**changes)).get("/v1/jobs")).status_code == 200, changes
    ending = provider.forged(exp=now + 5)
    assert (await server.client(ending).get("/v1/jobs")).status_code == 200
    clock = server.services.provider
    assert clock is not None
    was, clock.clock = clock.clock, LaterClock(70_000)
    try:
        problem(await server.client(ending).get("/v1/jobs"), 401)  # known already, and over all the same
    finally:
        clock.clock = was


async def test_keys_are_rotated_and_a_key_that_is_gone_is_good_no_more(
    server: RunningServer, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = server.services.provider
    assert asking is not None
    first, second = provider.key, new_key("second")
    old = server.client(provider.forged())
    assert (await old.get("/v1/jobs")).status_code == 200
    try:
        await provider.stop()
        provider.key = second
        await provider.start(beside=first)
        # Right after a reading nothing is read anew: strangers could make the provider busy with names of keys.
        asking._tried_at = asking.clock.monotonic()
        problem(await server.client(provider.forged()).get("/v1/jobs"), 401)
        asking._tried_at = 0.0
        new = server.client(await provider.robot_token())
        assert (await new.get("/v1/jobs")).status_code == 200
        assert (await old.get("/v1/jobs")).status_code == 200
        await provider.stop()
        # The provider is away: what is known stays good, however long ago it was to be read anew.
        monkeypatch.setattr(oidc_provider, "FRESH", 0.0)
        asking._tried_at = 0.0
        assert (await new.get("/v1/jobs")).status_code == 200
        await provider.start()
        asking._tried_at = 0.0
        assert (await new.get("/v1/jobs")).status_code == 200
        problem(await old.get("/v1/jobs"), 401)
    finally:
        await provider.stop()
        provider.key = first
        await provider.start()
        asking._tried_at = 0.0
        assert (await old.get("/v1/jobs")).status_code == 200


async def test_a_provider_that_was_never_reached_lets_nobody_in_and_own_tokens_go_on(
    provider: OidcProvider, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    table = provider.table(issuer="http://127.0.0.1:9")
    async with store_room("sqlite", state) as url, Domain(url, state).server(oidc=table) as running:
        problem(await running.client(provider.forged(iss="http://127.0.0.1:9")).get("/v1/jobs"), 503)
        assert (await running.person("viewer", tenant="physics").get("/v1/jobs")).status_code == 200


async def test_a_person_logs_in_by_the_providers_page(server: RunningServer) -> None:
    async with http_client(server.url) as browser:
        stranger = await browser.get("/runs", headers={"Accept": "text/html"})
        assert stranger.status_code == 401
        assert "/login/provider?on=/runs" in stranger.text
        answer = await walk(browser, f"{server.url}/login/provider?on=/runs", login="grace")
        assert (answer.status_code, answer.url.path) == (200, "/login/back"), answer.text
        assert "url=/runs" in answer.text
        cookies = SimpleCookie()
        for rawdata in answer.headers.get_list("set-cookie"):
            cookies.load(rawdata)
        session = cookies[cookie_of(server.app.state.context)]
        assert (session["httponly"], session["samesite"].lower()) == (True, "strict")
        returned_body = (await browser.get("/v1/session")).json()
        assert (returned_body["subject"], returned_body["tenant"]) == ("grace", "physics")
        assert "operator" in returned_body["roles"]
        # As today: acts want the page's own word.
        body = {"specification": {"command": ["true"]}, "jobs": [{}]}
        problem(await browser.post("/v1/jobs", json=body), 403)
        assert (
            await browser.post("/v1/jobs", json=body, headers={WORD_HEADER: returned_body["word"]})
        ).status_code == 201


@pytest.mark.parametrize(("login", "status"), [("guest", 403), ("homeless", 401)])
async def test_who_has_no_role_or_no_tenant_gets_no_session(server: RunningServer, login: str, status: int) -> None:
    async with http_client(server.url) as browser:
        answer = await walk(browser, f"{server.url}/login/provider", login=login)
        problem(answer, status)
        assert "set-cookie" not in answer.headers


async def test_a_code_is_good_for_the_browser_that_asked_and_once(server: RunningServer) -> None:
    """Neither a link with somebody else's code nor a second use of one begins a session."""
    async with http_client(server.url) as browser, http_client(server.url) as other:
        begun = await browser.get("/login/provider")
        asked = parse_qs(urlsplit(begun.headers["location"]).query)
        assert asked["code_challenge_method"] == ["S256"]
        assert asked["state"] != asked["nonce"]
        answer = await walk(browser, f"{server.url}/login/provider", login="grace")
        used = answer.url.raw_path.decode()
        problem(await other.get(used), 401)
        await other.get("/login/provider")
        problem(await other.get(used), 401)  # begun there too, but another log-in
        problem(await browser.get(used), 401)


async def test_answers_that_belong_to_no_log_in(server: RunningServer) -> None:
    async with http_client(server.url) as browser:
        await browser.get("/login/provider")
        for query in ("", "?code=x", "?code=x&state=y", "?error=access_denied", "?state=&code=x&iss=http://other"):
            problem(await browser.get(f"/login/back{query}"), 401)
        problem(await browser.get("/login/back?code=" + "x" * 3000), 422)


@pytest.mark.parametrize(
    "on", ["//evil.example", "https://evil.example", "/\\evil.example", "/a?b=<script>", "javascript:x"]
)
async def test_nobody_is_led_to_another_site(server: RunningServer, on: str) -> None:
    async with http_client(server.url) as browser:
        start = str(browser.build_request("GET", "/login/provider", params={"on": on}).url)
        answer = await walk(browser, start, login="grace")
        assert "url=/'" in answer.text
        assert "evil" not in answer.text
        assert "script" not in answer.text.lower()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"issuer": "http://login.example.org"}, "https"),
        ({"tenant_claim": ""}, "tenant"),
        ({"tenant": "physics"}, "tenant"),
        ({"client_secret": "the secret itself"}, "client_secret"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"roles": {"x": ["god"]}}, "roles"),
        ({"roles": {"x": ["pilot"]}}, "pilot"),
        ({"leeway": 86_400}, "leeway"),
        ({"scopes": "email"}, "scopes"),
    ],
)
def test_a_table_that_would_let_the_wrong_ones_in_is_refused(
    tmp_path: Path, changes: dict[str, object], word: str
) -> None:
    table = OidcProvider(tmp_path).table(**changes)
    with pytest.raises(Permanent, match=word):
        load({"FORESTAY_OIDC": json.dumps(table)})


async def test_the_figures_of_a_reconciler_are_shown_to_viewers_of_the_provider(
    server: RunningServer, provider: OidcProvider
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    figures = Metrics(lambda: [Sample("forestay_servers_alive", "Servers", 1)])
    async with (
        metrics_endpoint(figures, server.services.callers, listen="127.0.0.1", port=port),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as anyone,
    ):
        pilot = server.domain.token("enrol", tenant="physics")
        wanted = [("nothing", 401), (_unsigned(provider), 401), (pilot, 403), (await provider.robot_token(), 200)]
        for token, status in [*wanted, (server.domain.token("viewer", tenant="physics"), 200)]:
            answer = await anyone.get("/metrics", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == status
            assert ("forestay_servers_alive" in answer.text) == (status == 200)
