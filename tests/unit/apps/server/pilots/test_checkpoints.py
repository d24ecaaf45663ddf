"""Checkpoints by the HTTP interface."""

from __future__ import annotations

from typing import Any

from tests.unit.apps.server.asks import read, story, submit_one
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

POLICY = {"files": ["*.ckpt"], "signal": "USR1", "every": 60}


def saved(claim: dict[str, Any], number: int, content: str = "a") -> dict[str, Any]:
    folder = f"{claim['tenant']}/{claim['job']}/{claim['generation']}.{claim['attempt']}.{claim['claim'][:8]}.c{number}"
    manifest = {"path": f"/out/{folder}/manifest.json", "sha256": "0" * 64, "files": 2, "bytes": 7}
    return {"manifest": manifest, "content": content * 64, "number": number}


def report(claim: dict[str, Any], checkpoint: dict[str, Any]) -> dict[str, Any]:
    return {name: claim[name] for name in ("job", "generation", "attempt", "claim")} | {"checkpoint": checkpoint}


async def test_an_attempt_begins_with_the_newest_checkpoint_and_progress_costs_nothing(
    server: RunningServer, tenant: str
) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada, checkpoint=POLICY)
    pilot = await ScriptedPilot.register(server, tenant)
    claim = await pilot.claim_one()
    assert claim["specification"]["checkpoint"] == POLICY
    assert claim.get("checkpoint") is None
    first, second = saved(claim, 1), saved(claim, 2, "b")
    answer = await pilot.post("checkpoints", report(claim, first))
    assert (answer.status_code, answer.json()) == (200, {"path": first["manifest"]["path"]})
    same = await pilot.post("checkpoints", report(claim, saved(claim, 2)))
    assert same.json() == {"path": first["manifest"]["path"]}
    assert await pilot.end(claim, outcome="failure", reason="wall-limit", checkpoint=second) == ["committed"]
    shown = await read(ada, job)
    assert (shown["state"], shown["failures"]) == ("available", 0)
    again = await pilot.claim_one()
    assert again["checkpoint"] == {"attempt": 1, "manifest": second["manifest"]}
    assert "from the checkpoint of attempt 1 (2 files, 7 B" in (await story(ada, job))[-1]["words"]
    assert await pilot.end(again, outcome="failure", reason="wall-limit") == ["committed"]

    async def failed() -> bool:
        return bool((await read(ada, job))["state"] == "failed")

    await until(failed, "the failure of an attempt without progress")
