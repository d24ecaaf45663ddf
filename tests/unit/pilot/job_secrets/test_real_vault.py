"""Secrets of a real Vault, or OpenBao: FORESTAY_TEST_VAULT is its address, FORESTAY_TEST_VAULT_TOKEN a token that may do everything."""

from __future__ import annotations

import json
import os
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.unit.pilot.conftest import RunningPilot
from tests.unit.pilot.fake_server import FakeServer

from forestay_pilot.job_secrets.secret_error import SecretError
from forestay_pilot.job_secrets.site_secrets import SiteSecretsFile
from forestay_pilot.job_secrets.vault import VaultSettings, read_vault

ADDRESS, ROOT_TOKEN = os.environ.get("FORESTAY_TEST_VAULT", ""), os.environ.get("FORESTAY_TEST_VAULT_TOKEN", "")
VALUE = "the-token-in-the-real-vault"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ADDRESS, reason="there is no Vault (FORESTAY_TEST_VAULT, FORESTAY_TEST_VAULT_TOKEN)"),
]


class Store(NamedTuple):
    """A key-value store of the test's own, and a token that may read a part of it."""

    mount: str
    token: str


def ask(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 - the test's own Vault
        f"{ADDRESS}/v1/{path}", json.dumps(body or {}).encode(), {"X-Vault-Token": ROOT_TOKEN}, method=method
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        content = answer.read()
    return json.loads(content) if content else {}


@pytest.fixture(scope="module")
def store() -> Store:
    mount = f"test-{uuid.uuid4().hex[:8]}"
    ask("POST", f"sys/mounts/{mount}", {"type": "kv", "options": {"version": "2"}})
    ask("POST", f"{mount}/data/team/app", {"data": {"token": VALUE, "number": 5}})
    ask("POST", f"{mount}/data/team/gone", {"data": {"token": VALUE}})
    ask("DELETE", f"{mount}/data/team/gone")
    ask("POST", f"{mount}/data/other", {"data": {"token": VALUE}})
    ask("PUT", f"sys/policies/acl/{mount}", {"policy": f'path "{mount}/data/team/*" {{ capabilities = ["read"] }}'})
    made = ask("POST", "auth/token/create", {"policies": [mount], "no_default_policy": True})
    return Store(mount, made["auth"]["client_token"])


def test_values_are_read_by_a_token_with_a_policy(store: Store) -> None:
    settings = VaultSettings(address=ADDRESS, token=store.token)
    assert read_vault(settings, f"{store.mount}/data/team/app") == {"token": VALUE, "number": 5}


@pytest.mark.parametrize(
    ("path", "token", "error"),
    [
        ("{mount}/data/team/nothing", "", "not-found"),
        ("{mount}/data/team/gone", "", "not-found"),
        ("{mount}/data/other", "", "denied"),
        ("nowhere/data/team/app", "", "denied"),
        ("{mount}/data/team/app", "hvs.no-such-token", "denied"),
    ],
)
def test_refusals_have_their_causes(store: Store, path: str, token: str, error: str) -> None:
    settings = VaultSettings(address=ADDRESS, token=token or store.token)
    with pytest.raises(SecretError) as caught:
        read_vault(settings, path.format(mount=store.mount))
    assert caught.value.error == error


def test_a_job_gets_a_value_as_variable_and_file(
    server: FakeServer, pilot: Callable[..., RunningPilot], tmp_path: Path, store: Store
) -> None:
    (tmp_path / "token").write_text(store.token)
    (tmp_path / "token").chmod(0o600)
    owners = {"ann": [f"vault:{store.mount}/data/team/*"]}
    site = {"vault": {"address": ADDRESS, "token_file": str(tmp_path / "token"), "allow_http": True}, "owners": owners}
    (tmp_path / "site.json").write_text(json.dumps(site))
    (tmp_path / "site.json").chmod(0o600)
    claim = server.submit("sh", "-c", 'test "$(cat $FILE)" = "$TOKEN" && echo same $NUMBER; echo $TOKEN', owner="ann")
    path = f"{store.mount}/data/team/app"
    claim["specification"]["secrets"] = {
        "TOKEN": f"vault:{path}#token",
        "NUMBER": f"vault:{path}#number",
        "FILE": {"vault": f"{path}#token", "as": "file"},
    }
    pilot(secrets=SiteSecretsFile(str(tmp_path / "site.json")))
    end = server.end_of(claim)
    assert (end["outcome"], end["log_tail"].splitlines()) == ("ok", ["same 5", "[secret FILE]"]), end
