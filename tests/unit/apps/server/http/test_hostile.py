"""What a hostile tester tried on a real server, byte by byte, and what came of it."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.running import RunningServer

from forestay.apps.compose.proxies import CALLBACK_PURPOSE


async def _send(server: RunningServer, data: str) -> bytes:
    """Send bytes, and read all that comes until the server hangs up or stays silent."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    got = b""
    try:
        writer.write(data.encode("latin-1"))
        async with asyncio.timeout(20):
            while piece := await reader.read(65_536):
                got += piece
        return got
    finally:
        writer.close()


def _status(answer: bytes) -> int:
    return int(answer[9:12])


async def test_headers_that_are_no_token_open_nothing(local: RunningServer, tenant: str) -> None:
    """Nor does one beside a good token make it another: what stands before us may look at one of two, and we at the other."""
    good = local.domain.token("administrator", tenant=tenant)
    less = local.domain.token("viewer", tenant=tenant)
    for name, (head, status) in {
        "another address": ("X-Original-URL: /v1/audit\r\nX-Rewrite-URL: /v1/audit\r\n", 401),
        "a name by a proxy": ("X-Forwarded-User: root\r\nX-Remote-User: root\r\nRemote-User: root\r\n", 401),
        "two tokens": (f"Authorization: Bearer {less}\r\nAuthorization: Bearer {good}\r\n", 401),
        "the same twice": (f"Authorization: Bearer {good}\r\nauthorization: Bearer {good}\r\n", 401),
        "two in one": (f"Authorization: Bearer {less}, Bearer {good}\r\n", 401),
        "for a proxy": (f"Proxy-Authorization: Bearer {good}\r\n", 401),
        "nearly the header": (f"Authorization_: Bearer {good}\r\n", 401),
        "words behind it": (f"Authorization: Bearer {good} x\r\n", 401),
        "a tab": (f"Authorization: Bearer\t{good}\r\n", 401),
        "another cookie": (f"Cookie: forestay-session={good}\r\n", 401),
        "a folded line": (f"Authorization:\r\n Bearer {good}\r\n", 400),
        "a zero": (f"Authorization: Bearer {good}\0\r\n", 400),
        "as it should be": (f"Authorization: Bearer {good}\r\n", 200),
    }.items():
        answer = await _send(local, f"GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{head}\r\n")
        assert _status(answer) == status, (name, answer[:200])


@pytest.mark.parametrize(
    "path",
    [
        "//v1/audit", "/v1//audit", "/v1/./audit", "/v1/jobs/../audit", "/v1/%61udit", "/V1/audit", "/v1/audit/", "/v1/audit;a=b", "/v1/audit%00",
        "/v1/audit%2f", "/login/../v1/audit", "/login/..%2fv1/audit", "/login%2f..%2fv1%2faudit", "/assets/../v1/audit", "/%2e%2e/v1/audit",
        "/ga4gh/wes/v1/../../../v1/audit", "/v1/peering/../audit", "/v1/downstreams/../audit?token={token}", "/v1/downstreams/x/../../audit?token={token}",
        "/v1/audit?token={token}", "http://127.0.0.1/v1/audit",
    ],
)  # fmt: skip
async def test_odd_paths_lead_past_no_check(local: RunningServer, tenant: str, path: str) -> None:
    token = local.domain.token("administrator", tenant=tenant)
    asked = path.replace("{token}", token)
    answer = await _send(local, f"GET {asked} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert _status(answer) in (400, 401, 404), answer[:200]


@pytest.mark.finding("F-C7")
async def test_a_token_in_an_address_opens_nothing(local: RunningServer, tenant: str) -> None:
    for role in ("administrator", "hint"):
        token = local.domain.token(role, tenant=tenant)
        async with http_client(local.url) as client:
            path = f"/v1/downstreams/x/told?token={token}"
            assert (await client.post(path, json={"job": "j"})).status_code == 401
            assert (await client.post(path.replace("token=", "capability="), json={"job": "j"})).status_code == 401


@pytest.mark.finding("F-C7")
async def test_a_capability_of_a_callback_opens_its_own_address_only(local: RunningServer, tenant: str) -> None:
    identity = local.services.components.identity
    words = {"downstream": "x", "tenant": tenant, "job": "j"}
    capability = identity.seal(words, purpose=CALLBACK_PURPOSE, seconds=60)
    other_purpose = identity.seal(words, purpose="login", seconds=60)
    body = {"job": "t"}
    async with http_client(local.url) as client:
        assert (await client.post(f"/v1/downstreams/x/told?capability={capability}", json=body)).status_code == 200
        assert (await client.post(f"/v1/downstreams/y/told?capability={capability}", json=body)).status_code == 403
        assert (await client.post(f"/v1/downstreams/x/told?capability={other_purpose}", json=body)).status_code == 401
        assert (await client.get(f"/v1/status?capability={capability}")).status_code == 401
    async with http_client(local.url, capability) as client:
        assert (await client.get("/v1/status")).status_code == 401, "it is no token"


@pytest.mark.finding("F-C7")
def test_no_route_takes_a_secret_in_its_address(local: RunningServer) -> None:
    named = {
        parameter["name"]
        for path in local.app.openapi()["paths"].values()
        for operation in path.values()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    }
    assert "capability" in named
    assert not named & {"token", "access_token", "secret", "password", "authorization"}


async def test_a_request_has_one_end(local: RunningServer) -> None:
    """Nothing can be hidden behind a body whose length is said in two ways."""
    behind = "GET /v1/audit HTTP/1.1\r\nHost: x\r\n\r\n"
    start = "POST /v1/jobs HTTP/1.1\r\nHost: x\r\n"
    for name, rest in {
        "both lengths": f"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{behind}",
        "a coding that is none": f"Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n\r\nabc{behind}",
        "two lengths": f"Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde{behind}",
        "a negative one": f"Content-Length: -1\r\n\r\n{behind}",
        "one beyond all": f"Content-Length: 99999999999999999999\r\n\r\n{behind}",
    }.items():
        answer = await _send(local, start + rest)
        assert (answer.count(b"HTTP/1.1 "), _status(answer)) == (1, 400), (name, answer[:300])


async def test_a_link_is_not_made_of_what_a_request_says(local: RunningServer, tenant: str) -> None:
    token = local.domain.token("viewer", tenant=tenant)
    text = "Host: evil.example\r\nX-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: gopher\r\nForwarded: host=evil.example\r\n"
    asked = f"POST /v1/logins HTTP/1.1\r\n{text}Authorization: Bearer {token}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    answer = await _send(local, asked)
    assert _status(answer) == 201
    assert b"evil" not in answer
    assert b"gopher" not in answer
