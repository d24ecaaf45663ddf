"""No route without a token, and none without the right role."""

from __future__ import annotations

import base64
import json
import time
from itertools import cycle, islice
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.routes import routes_of
from tests.unit.apps.server.running import RunningServer

from forestay.adapters.joserfc.identity import signing_keys
from forestay.ports.operations.identity import IMPLIED, Role

ROLES = [role for role in Role if role is not Role.PILOT]
TENANT = "no-such-tenant"
OPEN = {"/login", "/login/provider", "/login/back"}
"""The addresses without a token: they trade a link's secret or a provider's code for a session; see test_sessions.py and tests/system/identity/test_oidc.py."""


def _routes(server: RunningServer) -> list[tuple[str, str, Role | None]]:
    """Each method and path with the role that its check asks for, or None where there is no check."""
    routes: list[tuple[str, str, Role | None]] = []
    for route in routes_of(server.app):
        if route.path in OPEN:
            continue
        roles = [
            role
            for dependency in route.dependant.dependencies
            if (role := getattr(dependency.call, "role", None)) is not None
        ]
        path = route.path.replace("{job}", "some-job").replace("{pilot}", "p-someone")
        routes += [(method, path, roles[0] if len(roles) == 1 else None) for method in sorted(route.methods or ())]
    return routes


def _token(server: RunningServer, key: bytes | None = None, **changes: Any) -> str:
    now = int(time.time())
    claims = {"aud": "forestay", "sub": "ada", "tenant": TENANT, "roles": ["administrator"], "exp": now + 600}
    claims = {name: value for name, value in (claims | changes).items() if value is not None}
    signed = OctKey.import_key(key or signing_keys(server.domain.settings().key_file)[0])
    return jwt.encode({"alg": "HS256"}, claims, signed)


def _unsigned() -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {"aud": "forestay", "sub": "ada", "tenant": TENANT, "roles": ["administrator"], "exp": time.time() + 600}
    return f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(claims)}."


def _bad_headers(server: RunningServer) -> dict[str, str | bytes | None]:
    good = _token(server)
    head, body, signature = good.split(".")
    return {
        "none": None,
        "empty": "",
        "only the scheme": "Bearer",
        "nothing": "Bearer nothing",
        "another scheme": f"Basic {good}",
        "alg=none": f"Bearer {_unsigned()}",
        "alg=none, our signature": f"Bearer {_unsigned()}{signature}",
        "no signature": f"Bearer {head}.{body}.",
        "signature of another": f"Bearer {head}.{body}.{signature[::-1]}",
        "foreign key": f"Bearer {_token(server, key=b'x' * 64)}",
        "wrong audience": f"Bearer {_token(server, aud='another-service')}",
        "no audience": f"Bearer {_token(server, aud=None)}",
        "expired": f"Bearer {_token(server, exp=int(time.time()) - 2 * 86_400)}",
        "no end": f"Bearer {_token(server, exp=None)}",
        "endless": f"Bearer {_token(server, exp='never')}",
        "no tenant": f"Bearer {_token(server, tenant=None)}",
        "empty tenant": f"Bearer {_token(server, tenant='')}",
        "no subject": f"Bearer {_token(server, sub=None)}",
        "unknown role": f"Bearer {_token(server, roles=['god'])}",
        "roles are no list": f"Bearer {_token(server, roles=7)}",
        "5,000 characters": "Bearer " + "a" * 5000,
        "bytes that are no text": b"Bearer \xff\xfe\xfd",
        "a list for a head": "Bearer W10.e30.AAAA",
        "dots": "Bearer ..",
        "five parts": "Bearer a.b.c.d.e",
    }


def test_every_route_checks_a_role(local: RunningServer) -> None:
    routes = _routes(local)
    assert len(routes) > 20
    assert [route for route in routes if route[2] is None] == []


def test_no_page_describes_the_interface_without_a_token(local: RunningServer) -> None:
    assert local.app.docs_url is None
    assert local.app.redoc_url is None
    assert local.app.openapi_url is None


async def test_every_route_refuses_bad_tokens(local: RunningServer) -> None:
    anyone = local.client()
    bad = _bad_headers(local)
    in_turn = cycle(bad.items())
    for method, path, _ in _routes(local):
        # Who asks is found out in one place for all routes: each is asked with none and with some of the bad ones in turn.
        for what, header in [("none", None), *islice(in_turn, 5)]:
            headers = {} if header is None else {"Authorization": header}
            answer = await anyone.request(method, path, headers=headers)  # type: ignore[arg-type]
            assert answer.status_code == 401, f"{method} {path} with {what}: {answer.status_code} {answer.text}"
            assert answer.headers["www-authenticate"] == "Bearer"
            problem(answer, 401)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[" * 1000, b"{}"])
async def test_who_has_no_token_is_not_told_what_is_wrong_with_a_body(local: RunningServer, content: bytes) -> None:
    """Nor is it read: the connection is free before the rest of a body is sent."""
    anyone = local.client()
    kinds = {"Content-Type": "application/json"}
    for method, path, _ in _routes(local):
        if method in ("POST", "PUT"):
            for header in ({}, {"Authorization": f"Bearer {_token(local, key=b'x' * 64)}"}):
                problem(await anyone.request(method, path, content=content, headers=kinds | header), 401)


async def test_every_route_refuses_the_wrong_role(local: RunningServer) -> None:
    pilot = local.services.components.identity.issue(
        subject="p-another", tenant=TENANT, roles=frozenset({Role.PILOT}), seconds=600
    )
    people = {role: local.person(role.value, tenant=TENANT) for role in ROLES} | {Role.PILOT: local.client(pilot)}
    refused = 0
    for method, path, needed in _routes(local):
        assert needed is not None
        for role, person in people.items():
            # A pilot's token is good for its own pilot alone, so that this one is refused everywhere.
            if needed in IMPLIED[role] and role is not Role.PILOT:
                continue
            answer = await person.request(method, path)
            assert answer.status_code == 403, f"{method} {path} as {role}: {answer.status_code} {answer.text}"
            problem(answer, 403)
            refused += 1
    assert refused > 60


async def test_a_token_is_taken_as_a_password_too(local: RunningServer) -> None:
    """For clients that know only names and passwords; the name says nothing, and a wrong password is a wrong token."""
    admin = _token(local)
    for name, password, status in (("anyone", admin, 200), ("", admin, 200), ("ada", "secret", 401), (admin, "", 401)):
        text = base64.b64encode(f"{name}:{password}".encode()).decode()
        answer = await local.client().get("/v1/jobs", headers={"Authorization": f"Basic {text}"})
        assert answer.status_code == status, (name[:4], status)


async def test_a_token_in_the_query_is_no_token(local: RunningServer) -> None:
    """Tokens in addresses end up in logs."""
    answer = await local.client().get("/v1/jobs", params={"access_token": _token(local)})
    problem(answer, 401)


@pytest.mark.parametrize("path", ["/v1", "/v1/health", "/health", "/docs", "/v1/jobs/x/health", "/metrics/"])
async def test_unknown_addresses_are_problems_and_lead_nowhere(local: RunningServer, path: str) -> None:
    for client in (local.client(), local.person("administrator", tenant=TENANT)):
        problem(await client.get(path), 404)
        problem(await client.post(path, json={}), 404)


async def test_methods_that_a_route_does_not_have(local: RunningServer) -> None:
    admin = local.person("administrator", tenant=TENANT)
    for method in ("PUT", "PATCH", "OPTIONS", "TRACE"):
        problem(await admin.request(method, "/v1/jobs"), 405)


async def test_an_ended_token_of_a_pilot_renews_for_a_day_and_does_nothing_else(
    local: RunningServer, tenant: str
) -> None:
    registered = (await local.person("enrol", tenant=tenant).post("/v1/pilots", json={"host": "n"})).json()
    name = registered["pilot"]

    def ended(seconds: int) -> str:
        return _token(local, sub=name, tenant=tenant, roles=["pilot"], exp=int(time.time()) - seconds)

    late, too_late = local.client(ended(3600)), local.client(ended(86_500))
    problem(await late.post(f"/v1/pilots/{name}/heartbeat", json={"counter": 1}), 401)
    problem(await too_late.post(f"/v1/pilots/{name}/token"), 401)
    answer = await late.post(f"/v1/pilots/{name}/token")
    assert answer.status_code == 200
    fresh = local.client(answer.json()["token"])
    assert (await fresh.post(f"/v1/pilots/{name}/heartbeat", json={"counter": 1})).status_code == 200


async def test_a_token_renews_only_for_a_pilot_that_is_registered(local: RunningServer, tenant: str) -> None:
    stranger = local.client(_token(local, sub="p-nobody", tenant=tenant, roles=["pilot"]))
    problem(await stranger.post("/v1/pilots/p-nobody/token"), 403)
    problem(await stranger.post("/v1/pilots/p-nobody/claims", json={}), 403)
