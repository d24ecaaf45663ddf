"""What pilots are told about files, and what they tell: names, sources, how the files came."""

from __future__ import annotations

from typing import Any

from tests.server.asks import submit_one
from tests.server.running import RunningServer
from tests.server.scripted_pilot import ScriptedPilot

SHA = "ab" * 32


async def test_an_input_has_a_name_for_caches_only_where_it_cannot_change_unseen(
    server: RunningServer, tenant: str
) -> None:
    ada = server.person("submitter", tenant=tenant)
    pilot = await ScriptedPilot.register(server, tenant)
    producer = await submit_one(ada, command=["true"])
    manifest = {"path": "/out/manifest.json", "sha256": SHA, "files": 1, "bytes": 5}
    await pilot.end(await pilot.claim_one(), manifest=manifest)
    inputs = [
        {"name": "sure", "source": "/data/a", "sha256": SHA},
        {"name": "unsure", "source": "/data/{part}"},
        {"name": "made", "source": "job:{part}/out.txt"},
    ]
    await submit_one(ada, {"parameters": {"part": producer}}, command=["true"], inputs=inputs)
    told = {one["name"]: one for one in (await pilot.claim_one())["inputs"]}
    assert told["sure"]["file"] == "/data/a"
    assert "file" not in told["unsure"]
    assert told["made"]["file"] == f"job:{producer}/out.txt"
    assert not any("from" in one for one in told.values()), "nobody else has any of them"


async def test_peers_that_have_a_file_come_before_its_own_source(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    asked: list[tuple[str, str]] = []
    peer: dict[str, object] = {"kind": "peer", "url": "http://10.0.0.5:1/", "ticket": "1.aa", "host": "node2"}

    def peers(file: str, pilot: str) -> list[dict[str, object]]:
        asked.append((file, pilot))
        return [peer]

    server.app.state.desk.peers_for = peers
    try:
        await submit_one(ada, command=["true"], inputs=[{"name": "a", "source": "/data/a", "sha256": SHA}])
        pilot = await ScriptedPilot.register(server, tenant)
        (told,) = (await pilot.claim_one())["inputs"]
    finally:
        server.app.state.desk.peers_for = lambda _file, _pilot: []
    assert told["from"] == [peer, {"kind": "file", "path": "/data/a"}]
    assert asked == [("/data/a", pilot.name)]


async def test_how_the_files_came_is_kept_with_the_evidence(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada, command=["true"])
    pilot = await ScriptedPilot.register(server, tenant)
    came = {"file": "lfn:/a", "name": "a", "from": "element", "kind": "http", "element": "se2", "bytes": 5}
    trouble = {**came, "failed": ["se1: HTTP 403 for https://se1/a?X-Amz-Signature=0123456789abcdef0123456789abcdef"]}
    assert await pilot.end(await pilot.claim_one(), staging=[trouble]) == ["committed"]
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
        answer = await pilot.post("ends", {"ends": [end | {"staging": wrong}]})
        assert answer.status_code == 422, wrong


async def _evidence(client: Any, job: str) -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/jobs/{job}/story")
    found: list[dict[str, Any]] = answer.json()["evidence"]
    return found
