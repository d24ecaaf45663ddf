"""Every route that the server has, asked by those whom it must not answer: with no token, a wrong one, an ended one, and one of another tenant.

What is asked for is really there, and the bodies are such that the route would take them; otherwise a refusal would prove nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, seed, settings
from joserfc import jwt
from joserfc.jwk import OctKey
from schemathesis import Case
from schemathesis.core.transport import Response
from scripts import openapi
from tests.system.openapi.campaign import operations_of, schema_of, wait_briefly
from tests.system.openapi.ground import SECRET, TENANT, Ground

from forestay.adapters.joserfc.identity import signing_keys

pytestmark = pytest.mark.live
EACH = 2
"""Bodies and queries that are tried on every route."""


def _allowed(operation: Any) -> list[Case[Any]]:
    """Some cases that the description of an operation allows, the same in every run."""
    made: list[Case[Any]] = []

    @seed(1)
    @settings(
        max_examples=EACH,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def gather(case: Case[Any]) -> None:
        made.append(case)

    gather()
    return made[:EACH]


def _requests(there: Ground) -> Iterator[Case[Any]]:
    """For every operation some requests that it would answer."""
    for operation in operations_of(schema_of(json.loads(openapi.described()))):
        for case in _allowed(operation):
            for name in case.path_parameters:
                known = there.names.get(name)
                if known:
                    case.path_parameters[name] = known[0]
            wait_briefly(case)
            yield case


def _ended(there: Ground) -> str:
    """Good in every way, but a year old."""
    key = OctKey.import_key(signing_keys(there.running.domain.settings().key_file)[0])
    claims = {
        "aud": "forestay",
        "sub": "ada",
        "tenant": TENANT,
        "roles": ["administrator"],
        "exp": int(time.time()) - 86_400 * 365,
    }
    return jwt.encode({"alg": "HS256"}, claims, key)


def _foreign() -> str:
    """Signed by somebody else's installation."""
    claims = {
        "aud": "forestay",
        "sub": "ada",
        "tenant": TENANT,
        "roles": ["administrator"],
        "exp": int(time.time()) + 600,
    }
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(b"x" * 64))


def _shows(answer: Response, case: Case[Any], there: Ground) -> list[str]:
    """What of ours is in an answer to a stranger who did not name it."""
    ours = [SECRET, *(name for key in ("job", "run", "incident", "request") for name in there.names[key])]
    asked = f"{case.path_parameters} {case.query} {case.body!r}"
    return [name for name in ours if name in answer.text and name not in asked]


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as made:
        made.trust_env = False
        yield made


def test_no_route_is_open(there: Ground, session: requests.Session) -> None:
    """Asked with good bodies and with bytes that are none: who has no token does not even learn that they are none."""
    bad: dict[str, dict[str, str]] = {
        "no token": {},
        "wrong token": {"Authorization": f"Bearer {_foreign()}"},
        "ended token": {"Authorization": f"Bearer {_ended(there)}"},
    }
    asked = 0
    for case in _requests(there):
        for what, headers in bad.items():
            answers = [case.call(base_url=there.url, session=session, headers=headers)]
            if case.media_type is not None:
                headers_data = headers | {"Content-Type": case.media_type}
                url = there.url + case.formatted_path
                answers += [
                    Response.from_any(session.request(case.method, url, data=content, headers=headers_data))
                    for content in (b"{", b"\xff", b"[" * 1000)
                ]
            for answer in answers:
                asked += 1
                text = f"{case.operation.label} with {what}: {answer.status_code} {answer.text[:300]}"
                assert answer.status_code == 401, text
                assert _shows(answer, case, there) == [], text
    assert asked > 800


def test_a_stranger_of_another_tenant_learns_nothing(there: Ground, session: requests.Session) -> None:
    """The same person by name, an administrator there: what is named here does not exist for them, and no list shows it."""
    token = there.token("administrator", "engine", tenant="elsewhere")
    _, pilot_token = there.pilot(tenant="elsewhere")
    named = 0
    for case in _requests(there):
        pilots = "{pilot}" in case.path
        headers = {"Authorization": f"Bearer {pilot_token if pilots else token}"}
        answer = case.call(base_url=there.url, session=session, headers=headers)
        text = f"{case.operation.label}: {answer.status_code} {answer.text[:300]}"
        assert answer.status_code < 500, text
        assert _shows(answer, case, there) == [], text
        if pilots or any(
            f"{{{name}}}" in case.path for name in ("job", "run", "run", "task", "incident", "request", "version")
        ):
            named += 1
            assert answer.status_code in (401, 403, 404, 422), text
    assert named > 50
