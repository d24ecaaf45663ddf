"""What pilots are told about files, and what they tell: names, sources, how the files came."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apps.server.asks import submit_one
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot, own_manifest

from forestay.domain.jobs.inputs import JobInput
from forestay.domain.jobs.job_document import FlowRef
from forestay.domain.jobs.reuse import REUSE
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import JobElement, Submission

SHA = "ab" * 32


async def test_an_input_has_a_name_for_caches_only_where_it_cannot_change_unseen(
    server: RunningServer, tenant: str
) -> None:
    ada = server.person("submitter", tenant=tenant)
    pilot = await ScriptedPilot.register(server, tenant)
    producer = await submit_one(ada, command=["true"])
    claim = await pilot.claim_one()
    await pilot.end(claim, manifest=own_manifest(claim))
    inputs = [
        {"name": "sure", "source": "/data/a", "sha256": SHA},
        {"name": "unsure", "source": "/data/{part}"},
        {"name": "made", "source": "job:{part}/out.txt"},
    ]
    await submit_one(ada, {"parameters": {"part": producer}}, command=["true"], inputs=inputs)
    inputs_data = {input_["name"]: input_ for input_ in (await pilot.claim_one())["inputs"]}
    assert inputs_data["sure"]["file"] == "/data/a"
    assert "file" not in inputs_data["unsure"]
    assert inputs_data["made"]["file"] == f"job:{producer}/out.txt"
    assert not any("from" in inputs_record for inputs_record in inputs_data.values()), "nobody else has any of them"


async def test_peers_that_have_a_file_come_before_its_own_source(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    asked: list[tuple[str, str]] = []
    peer: dict[str, object] = {"kind": "peer", "url": "http://10.0.0.5:1/", "ticket": "1.aa", "host": "node2"}

    def peers(file: str, pilot: str) -> list[dict[str, object]]:
        asked.append((file, pilot))
        return [peer]

    server.app.state.context.peers_for = peers
    try:
        await submit_one(ada, command=["true"], inputs=[{"name": "a", "source": "/data/a", "sha256": SHA}])
        pilot = await ScriptedPilot.register(server, tenant)
        (value,) = (await pilot.claim_one())["inputs"]
    finally:
        server.app.state.context.peers_for = lambda _file, _pilot: []
    assert value["from"] == [peer, {"kind": "file", "path": "/data/a"}]
    assert asked == [("/data/a", pilot.name)]


async def test_how_the_files_came_is_kept_with_the_evidence(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada, command=["true"])
    pilot = await ScriptedPilot.register(server, tenant)
    came = {"file": "lfn:/a", "name": "a", "from": "element", "kind": "http", "element": "se2", "bytes": 5}
    trouble = {**came, "failed": ["se1: HTTP 403 for https://se1/a?X-Amz-Signature=0123456789abcdef0123456789abcdef"]}
    assert await pilot.end(await pilot.claim_one(), staging=[trouble]) == ["committed"]
    await server.refresh()
    (kept,) = await _evidence(ada, job)
    assert {name: kept["staging"][0][name] for name in came} == came
    assert "0123456789abcdef" not in str(kept), "an address may carry a signature"
    second = await submit_one(ada, command=["true"])
    assert await pilot.end(await pilot.claim_one(), staging=[came]) == ["committed"]
    assert await _evidence(ada, second) == [], "what went well at once costs no record"


async def test_staging_facts_are_bounded(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    await submit_one(ada, command=["true"])
    pilot = await ScriptedPilot.register(server, tenant)
    claim = await pilot.claim_one()
    end: dict[str, Any] = {name: claim[name] for name in ("job", "generation", "attempt", "claim")} | {"outcome": "ok"}
    for wrong in ([{"name": "a"}] * 51, [{"failed": ["x"] * 21}], [{"failed": ["x" * 301]}], [{"from": "x" * 33}]):
        answer = await pilot.post("completions", {"completions": [end | {"staging": wrong}]})
        assert answer.status_code == 422, wrong


async def _evidence(client: Any, job: str) -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/jobs/{job}/story")
    evidence: list[dict[str, Any]] = answer.json()["evidence"]
    return evidence


STORAGE: list[dict[str, Any]] = [
    {
        "name": "near",
        "kind": "http",
        "url": "http://127.0.0.1:1/near",
        "private": True,
        "sites": ["here"],
        "rules": [{"match": "/data/(.*)", "to": "d/$1"}],
        "doors": [{"kind": "root", "url": "root://127.0.0.1:2//near"}],
    },
    {
        "name": "far",
        "kind": "file",
        "path": "/far",
        "outputs": "out",
        "sites": ["there"],
        "rules": [{"match": "/data/(.*)", "to": "$1"}],
    },
]


@pytest.mark.ledger("P3-06")
async def test_a_file_of_the_catalogue_comes_from_where_it_is_cheapest(own_domain: Domain, tenant: str) -> None:
    async with own_domain.server(storage=STORAGE) as server:
        ada = server.person("submitter", tenant=tenant)
        inputs = [{"name": "a", "source": "lfn:/data/{part}.root"}, {"name": "b", "source": "lfn:/none"}]
        for site in ("here", "there"):
            await submit_one(ada, {"parameters": {"part": "x"}}, command=["true"], inputs=inputs)
            pilot = await ScriptedPilot.register(server, tenant, site=site)
            value, none = (await pilot.claim_one())["inputs"]
            near = [
                {"kind": "http", "url": "http://127.0.0.1:1/near/d/x.root", "private": True, "element": "near"},
                {"kind": "root", "url": "root://127.0.0.1:2//near/d/x.root", "private": True, "element": "near"},
            ]
            far = [{"kind": "file", "path": "/far/x.root", "element": "far"}]
            assert value["from"] == (near + far if site == "here" else far + near)
            assert value["file"] == "lfn:/data/x.root"
            assert none["missing"] == "no storage element has lfn:/none"


async def test_the_catalogue_is_kept_by_people_and_is_of_one_tenant(own_domain: Domain, tenant: str) -> None:
    async with own_domain.server(storage=STORAGE) as server:
        ada = server.person("operator", tenant=tenant)
        other = server.person("operator", tenant=f"{tenant}x")
        name = "lfn:/set/a"
        body = {"name": name, "element": "far", "path": "copies/a", "bytes": 5, "sha256": SHA}
        added = await ada.post("/v1/files/replicas", json=body)
        assert added.status_code == 200, added.text
        assert [replica["path"] for replica in added.json()["replicas"]] == ["copies/a"]
        assert (await other.get("/v1/files/where", params={"name": name})).status_code == 404
        again = await ada.post("/v1/files/replicas", json=body | {"bytes": 6})
        assert again.status_code == 409
        outside = body | {"path": f"out/{tenant}x/j/f"}
        assert (await ada.post("/v1/files/replicas", json=outside)).status_code == 422
        assert (await ada.post("/v1/files/replicas", json=body | {"path": "../a"})).status_code == 422
        marked = await ada.post("/v1/files/replicas/mark", json={"name": name, "element": "far", "reason": "torn"})
        (replica,) = marked.json()["replicas"]
        assert (replica["bad"], replica["why"]) == (True, "torn")

        async def listed() -> bool:
            files = (await ada.get("/v1/files", params={"name": "set"})).json()["files"]
            return [file["name"] for file in files] == [name]

        await until(listed, "the file in the list")
        assert (await other.get("/v1/files")).json()["files"] == []
        gone = await ada.post("/v1/files/replicas/remove", json={"name": name, "element": "far"})
        assert gone.json()["replicas"] == []
        assert (await ada.post("/v1/files/replicas/remove", json={"name": name, "element": "far"})).status_code == 404


async def test_a_viewer_may_look_and_not_change(own_domain: Domain, tenant: str) -> None:
    async with own_domain.server(storage=STORAGE) as server:
        eve = server.person("viewer", tenant=tenant)
        response = await eve.get("/v1/files/where", params={"name": "lfn:/data/x", "site": "there"})
        assert [replica["element"] for replica in response.json()["replicas"]] == ["far", "near"]
        body = {"name": "lfn:/data/x", "element": "near"}
        for route in ("replicas", "replicas/mark", "replicas/remove"):
            assert (await eve.post(f"/v1/files/{route}", json=body)).status_code == 403


async def test_outputs_go_to_the_element_of_the_site_and_consumers_find_them(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    here = [{**STORAGE[1], "path": str(tmp_path)}]
    async with own_domain.server(storage=here) as server:
        ada = server.person("submitter", tenant=tenant)
        job = await submit_one(ada, command=["true"], outputs=["*.txt"])
        pilot = await ScriptedPilot.register(server, tenant, site="there")
        claim = await pilot.claim_one()
        base = {"element": "far", "kind": "file", "base": f"{tmp_path}/out", "prefix": "out", "private": False}
        assert claim["outputs_to"] == base
        folder = f"out/{tenant}/{job}/0.1.{claim['claim'][:8]}"
        manifest = _written(tmp_path / folder, {"a.txt": b"hello"})
        await pilot.end(claim, manifest=manifest | {"path": f"element:far/{folder}/manifest.json"})
        await submit_one(ada, command=["true"], inputs=[{"name": "a", "source": f"job:{job}/a.txt"}])
        (value,) = (await pilot.claim_one())["inputs"]
        assert (value["bytes"], value["sha256"]) == (5, hashlib.sha256(b"hello").hexdigest())
        assert value["from"] == [{"kind": "file", "path": f"{tmp_path}/{folder}/a.txt", "element": "far"}]
        assert "manifest" not in value
        await submit_one(ada, command=["true"], inputs=[{"name": "a", "source": f"job:{job}/b.txt"}])
        (none,) = (await pilot.claim_one())["inputs"]
        assert none["missing"] == "the job has no output of this name"


async def test_a_manifest_on_an_element_that_was_changed_is_not_believed(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    here = [{**STORAGE[1], "path": str(tmp_path)}]
    async with own_domain.server(storage=here) as server:
        ada = server.person("submitter", tenant=tenant)
        job = await submit_one(ada, command=["true"], outputs=["*.txt"])
        pilot = await ScriptedPilot.register(server, tenant, site="there")
        claim = await pilot.claim_one()
        folder = f"out/{tenant}/{job}/0.1.{claim['claim'][:8]}"
        manifest = _written(tmp_path / folder, {"a.txt": b"hello"})
        await pilot.end(claim, manifest=manifest | {"path": f"element:far/{folder}/manifest.json"})
        _written(tmp_path / folder, {"a.txt": b"other"})
        await submit_one(ada, command=["true"], inputs=[{"name": "a", "source": f"job:{job}/a.txt"}])
        (value,) = (await pilot.claim_one())["inputs"]
        assert "not the manifest that was committed" in value["missing"]


def _written(folder: Path, files: dict[str, bytes]) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for name, content in files.items():
        (folder / name).write_bytes(content)
        listed.append({"path": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
    text = json.dumps({"files": listed}).encode()
    (folder / "manifest.json").write_bytes(text)
    size = sum(map(len, files.values()))
    return {"sha256": hashlib.sha256(text).hexdigest(), "files": len(files), "bytes": size}


async def test_what_a_result_would_be_reused_for_must_be_what_is_staged(own_domain: Domain, tenant: str) -> None:
    """The key of a result was made of these bytes: if the file has changed since, staging fails instead."""
    async with own_domain.server() as server:
        spec = Specification("s", tenant, "reused", ("true",), inputs=(JobInput("in.txt", "/data/{n}.txt"),))
        elements = [
            JobElement(
                "j-0", 0, {"n": 0}, FlowRef("r", "a@1", "f", -1, 0, 2), {REUSE: {"inputs": {"in.txt": "a" * 64}}}
            ),
            JobElement("j-1", 1, {"n": 1}, FlowRef("r", "a@1", "f", -1, 1, 2)),
        ]
        await server.services.submit.submit_elements(Submission(spec, "ada"), elements, by="run:r")
        pilot = await ScriptedPilot.register(server, tenant)
        claims = {claim["index"]: claim["inputs"][0] for claim in await pilot.claim(most=2)}
        assert (claims[0]["source"], claims[0]["sha256"]) == ("/data/0.txt", "a" * 64)
        assert claims[1]["sha256"] is None


async def test_a_replica_that_failed_is_tried_last_by_the_jobs_after_it(own_domain: Domain, tenant: str) -> None:
    async with own_domain.server(storage=STORAGE) as server:
        ada = server.person("submitter", tenant=tenant)
        pilot = await ScriptedPilot.register(server, tenant, element="near")
        wanted = [{"name": "a", "source": "lfn:/data/x"}]

        async def order() -> list[str]:
            await submit_one(ada, command=["true"], inputs=wanted)
            claim = await pilot.claim_one()
            (value,) = claim["inputs"]
            failed = [{"file": "lfn:/data/x", "name": "a", "element": "far", "failed": ["near: HTTP 404", "far: slow"]}]
            await pilot.end(claim, staging=failed)
            return [entry["element"] for entry in value["from"]]

        assert await order() == ["near", "near", "far"]
        assert await order() == ["far", "near", "near"]
        replicas = (await ada.get("/v1/files/where", params={"name": "lfn:/data/x"})).json()["replicas"]
        assert [(replica["element"], replica["bad"], replica["why"]) for replica in replicas] == [
            ("far", False, ""),
            ("near", True, "HTTP 404"),
        ]


async def test_nobody_commits_what_lies_in_anothers_folder(own_domain: Domain, tenant: str, tmp_path: Path) -> None:
    here = [{**STORAGE[1], "path": str(tmp_path)}]
    async with own_domain.server(storage=here) as server:
        ada = server.person("submitter", tenant=tenant)
        job = await submit_one(ada, command=["true"], outputs=["*.txt"])
        pilot = await ScriptedPilot.register(server, tenant, site="there")
        claim = await pilot.claim_one()
        manifest = _written(tmp_path / "out/other/j-1/0.1.aa", {"a.txt": b"secret"})
        await pilot.end(claim, manifest=manifest | {"path": "element:far/out/other/j-1/0.1.aa/manifest.json"})
        shown = (await ada.get(f"/v1/jobs/{job}")).json()
        assert (shown["state"], shown["last"]["error"], shown["winner"]) == ("failed", "bad-manifest", None)


@pytest.mark.finding("F-C1")
async def test_nobody_commits_the_folder_of_another_tenant_on_a_shared_file_system(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    async with own_domain.server(outputs=(tmp_path,)) as server:
        victim = f"{tenant}-victim"
        bob = server.person("submitter", tenant=victim)
        secret_job = await submit_one(bob, command=["true"], outputs=["result"])
        sound = await ScriptedPilot.register(server, victim)
        secret_claim = await sound.claim_one()
        own = own_manifest(secret_claim)["path"].removeprefix("/out/").removesuffix("/manifest.json")
        manifest = _written(tmp_path / own, {"result": b"secret"}) | {"path": f"{tmp_path}/{own}/manifest.json"}
        assert await sound.end(secret_claim, manifest=manifest) == ["committed"]
        assert (await bob.get(f"/v1/jobs/{secret_job}")).json()["winner"]["manifest"] == manifest

        ada = server.person("submitter", tenant=tenant)
        forger = await ScriptedPilot.register(server, tenant)
        inside = f"{tmp_path}/{own}/../../../{{}}/manifest.json"
        for path in (manifest["path"], inside):
            job = await submit_one(ada, command=["true"], outputs=["result"])
            claim = await forger.claim_one()
            named = own_manifest(claim)["path"].removeprefix("/out/").removesuffix("/manifest.json")
            await forger.end(claim, manifest=manifest | {"path": path.format(named)})
            shown = (await ada.get(f"/v1/jobs/{job}")).json()
            assert (shown["state"], shown["last"]["error"], shown["winner"]) == ("failed", "bad-manifest", None)
            assert (await ada.get(f"/v1/jobs/{job}/outputs")).status_code == 404


@pytest.mark.ledger("P0-12")
async def test_the_default_policy_sends_a_job_to_another_replica_though_its_pilot_did_not_say_which_failed(
    own_domain: Domain, tenant: str
) -> None:
    async with own_domain.server(storage=STORAGE, free_tries=()) as server:
        ada = server.person("submitter", tenant=tenant)
        pilot = await ScriptedPilot.register(server, tenant, site="here")
        job = await submit_one(ada, command=["true"], inputs=[{"name": "a", "source": "lfn:/data/x"}])
        failure: dict[str, Any] = {"outcome": "failure", "reason": "data-missing", "stage": "staging-in", "file": "a"}
        for order in (["near", "near", "far"], ["far", "near", "near"]):
            claim = await pilot.claim_one()
            (value,) = claim["inputs"]
            assert [entry["element"] for entry in value["from"]] == order
            await pilot.end(claim, **failure)
        shown = (await ada.get(f"/v1/jobs/{job}")).json()
        assert (shown["state"], shown["attempt"]) == ("failed", 2), "no other one is left: its own policy answers"


@pytest.mark.ledger("P0-11")
async def test_a_transfer_that_timed_out_is_given_more_time_by_the_default_policy(
    own_domain: Domain, tenant: str
) -> None:
    async with own_domain.server(free_tries=()) as server:
        ada = server.person("submitter", tenant=tenant)
        pilot = await ScriptedPilot.register(server, tenant)
        await submit_one(ada, command=["true"], inputs=[{"name": "a", "source": "/data/x"}])
        failure: dict[str, Any] = {
            "outcome": "failure", "reason": "transfer", "error": "ETIMEDOUT", "stage": "staging-in", "file": "a",
        }  # fmt: skip
        seen = []
        for _ in range(4):
            claim = await pilot.claim_one()
            seen.append(claim["inputs"][0].get("transfer", {}).get("timeout"))
            await pilot.end(claim, **failure)
        assert seen == [None, 120, 480, 1920]
        assert await pilot.claim(wait=0) == [], "the default policy helps three times"


@pytest.mark.ledger("P0-13")
async def test_a_job_keeps_away_from_a_whole_site(own_domain: Domain, tenant: str) -> None:
    async with own_domain.server(free_tries=()) as server:
        ada = server.person("submitter", tenant=tenant)
        first = await ScriptedPilot.register(server, tenant, site="here", host="node1")
        same_site = await ScriptedPilot.register(server, tenant, site="here", host="node2")
        other = await ScriptedPilot.register(server, tenant, site="there", host="node3")
        await server.refresh()
        job = await submit_one(ada, command=["true"], inputs=[{"name": "a", "source": "/data/x"}])
        claim = await first.claim_one()
        await first.end(
            claim, outcome="failure", reason="disk", error="ENOSPC", stage="staging-in", file="a", host="node1"
        )
        assert await first.claim(wait=0) == []
        assert await same_site.claim(wait=0) == []
        assert (await other.claim_one())["job"] == job
