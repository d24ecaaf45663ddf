"""Signed addresses of a real S3 server: good for one file, one method and a short time, and only for who holds the claim."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.live.s3_element import KEY, SECRET, s3_table
from tests.unit.apps.server.asks import submit_one
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot
from tests.unit.apps.server.store_room import store_room

from forestay.adapters.botocore.signing import S3Signer
from forestay.adapters.system.secrets import ReferencedSecrets
from forestay.apps.compose.components import build_storage_access
from forestay.apps.config.storage_settings import ElementTable, credentials_of
from forestay.domain.jobs.job_document import Manifest
from forestay.ports.errors import Permanent

pytestmark = pytest.mark.live


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RunningServer]:
    table = s3_table(sites=["here"], outputs="out", rules=[{"match": "/data/(.*)", "to": "d/$1"}])
    async with store_room("sqlite", tmp_path) as url:
        domain = Domain(url, tmp_path, {"storage": [table]})
        async with domain.server() as running:
            yield running


async def _put(url: str, content: bytes) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.put(url, content=content)).status_code


async def _get(url: str) -> tuple[int, bytes]:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(url)
        return answer.status_code, answer.content


async def test_outputs_go_up_and_come_down_by_signed_addresses_alone(server: RunningServer) -> None:
    tenant = "t-signed"
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada, command=["true"], outputs=["*.txt"])
    pilot = await ScriptedPilot.register(server, tenant, site="here")
    claim = await pilot.claim_one()
    assert (claim["outputs_to"]["kind"], claim["outputs_to"]["prefix"]) == ("s3", "out")
    files = {"a b.txt": b"hello"}
    listed = [
        {"path": name, "bytes": len(file), "sha256": hashlib.sha256(file).hexdigest()} for name, file in files.items()
    ]
    files["manifest.json"] = json.dumps({"files": listed}).encode()
    body = {"job": job, "claim": claim["claim"], "files": [{"path": name} for name in files]}
    answer = await pilot.post("uploads", body)
    assert answer.status_code == 200, answer.text
    for name, url in answer.json()["urls"].items():
        assert await _put(url, files[name]) == 200
        assert (await _get(url))[0] == 403, "it is good for one method"
    place = f"element:cloud/{answer.json()['base']}/manifest.json"
    digest = hashlib.sha256(files["manifest.json"]).hexdigest()
    await pilot.end(claim, manifest={"path": place, "sha256": digest, "files": 1, "bytes": 5})
    assert (await pilot.post("uploads", body)).status_code == 409, "it holds the claim no more"
    await submit_one(ada, command=["true"], inputs=[{"name": "a", "source": f"job:{job}/a b.txt"}])
    (value,) = (await pilot.claim_one())["inputs"]
    (source,) = value["from"]
    assert await _get(source["url"]) == (200, b"hello")
    assert value["sha256"] == listed[0]["sha256"]
    async with httpx.AsyncClient(trust_env=False) as client:
        bare = source["url"].partition("?")[0]
        assert (await client.get(bare)).status_code == 403
        assert (await client.get(source["url"].replace("a%20b", "manifest"))).status_code == 403
    await _no_secrets(server, ada, job)


async def _no_secrets(server: RunningServer, client: httpx.AsyncClient, job: str) -> None:
    """Neither the key nor a signed address is in anything that is kept."""
    shown = (await client.get(f"/v1/jobs/{job}")).text + (await client.get(f"/v1/jobs/{job}/story")).text
    kept = _content(server.services.components.settings.store_url.removeprefix("sqlite:///"))
    for secret in (os.environ[SECRET], os.environ[KEY], "X-Amz-Signature"):
        assert secret not in shown
        assert secret.encode() not in kept


def _content(path: str) -> bytes:
    """Of the database and of what is not yet in it."""
    return b"".join(other_path.read_bytes() for other_path in Path(path).parent.glob(f"{Path(path).name}*"))


async def test_only_who_holds_the_claim_gets_addresses(server: RunningServer) -> None:
    tenant = "t-claims"
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada, command=["true"], outputs=["*.txt"])
    mine, other = [await ScriptedPilot.register(server, tenant, site="here") for _ in range(2)]
    stranger = await ScriptedPilot.register(server, f"{tenant}x", site="here")
    claim = await mine.claim_one()
    body: dict[str, Any] = {"job": job, "claim": claim["claim"], "files": [{"path": "a.txt"}]}
    assert (await other.post("uploads", body)).status_code == 409
    assert (await stranger.post("uploads", body)).status_code == 404
    for path in ("../a", "/a", "a/../../b", ""):
        assert (await mine.post("uploads", body | {"files": [{"path": path}]})).status_code == 422
    assert (await mine.post("uploads", body | {"files": [{"path": "a"}] * 1001})).status_code == 422


async def test_an_address_is_good_for_a_short_time() -> None:
    table = ElementTable.model_validate(s3_table())
    signer, element = S3Signer(credentials_of([table]), ReferencedSecrets()), table.element
    url = f"{element.doors[0].base}/a"
    assert await _put(signer.sign(element, "PUT", url, 60), b"x") == 200
    short = signer.sign(element, "GET", url, 2)
    assert (await _get(short))[0] == 200

    async def over() -> bool:
        return (await _get(short))[0] == 403

    await until(over, "the address to expire")


def test_credentials_that_are_missing_are_told_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ElementTable.model_validate(s3_table())
    monkeypatch.delenv(SECRET)
    with pytest.raises(Permanent, match="credentials of cloud are missing") as failure:
        S3Signer(credentials_of([table]), ReferencedSecrets()).sign(table.element, "GET", "http://127.0.0.1/a", 60)
    assert os.environ[KEY] not in str(failure.value)


async def test_a_manifest_that_was_changed_is_not_believed(tmp_path: Path) -> None:
    domain = Domain("sqlite://", tmp_path)
    reach = build_storage_access(domain.settings(storage=[s3_table(outputs="out")]))
    path = "out/t/j/0.1.aa/manifest.json"
    (url,) = reach.uploads("cloud", [path]).values()
    assert await _put(url, b'{"files": []}') == 200
    good = Manifest(f"element:cloud/{path}", hashlib.sha256(b'{"files": []}').hexdigest(), 0, 0)
    assert await reach.listed("t", good) == {}
    with pytest.raises(Permanent, match="not the manifest"):
        await reach.listed("t", Manifest(good.path, "ab" * 32, 0, 0))
    with pytest.raises(Permanent, match="may read"):
        await reach.listed("other", Manifest(good.path, "cd" * 32, 0, 0))
    assert await reach.remove(reach.elements["cloud"], path)
    with pytest.raises(Permanent, match="gone"):
        await reach.listed("t", Manifest(good.path, "ef" * 32, 0, 0))
