"""The compensation library on a real Temporal: changed while runs go on, each run is undone by what was registered when its tasks completed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.live.run_site import BAD, GOOD, TENANT, RunSite, run_site
from tests.unit.apps.server.running import until

from forestay.domain.flows.events import VerbKind

pytestmark = pytest.mark.live

SLOT = """
forestay: 1
name: slot
params: {slot: front}
tasks:
  request: {command: [do], action: reserve}
  approve: {command: [do], after: [request]}
  publish: {command: [do], after: [approve], when_failed: hold}
"""


async def register(ann: httpx.AsyncClient, action: str, *command: str) -> str:
    text = json.dumps({"action": action, "command": [*command, "${run}"], "tries": 1})
    answer = await ann.put(f"/v1/compensations/{action}", json={"text": text})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["version"])


async def stack(site: RunSite, run: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = (await site.engine.state(run))["stack"]
    return entries


@pytest.mark.ledger("P2-01", "P2-04")
async def test_a_run_is_undone_by_the_versions_of_the_moment_its_tasks_completed(tmp_path: Path) -> None:
    """The flow declares no compensation. Two runs of it stand at the same place when the library changes, and a third starts later."""
    undone: dict[str, list[str]] = {}

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        name, command = claim["name"], claim["specification"]["command"]
        if command == ["do"]:
            return BAD if name == "publish" else GOOD
        *words, run = command
        undone.setdefault(run, []).append(" ".join(words))
        return BAD if command[0] == "broken" else GOOD

    async with run_site("sqlite", tmp_path) as site:
        site.fate = fate
        ann = site.server.person("operator", "rule-author", tenant=TENANT, subject="ann")
        old = await register(ann, "reserve", "release", "${params.slot}")
        approval = await register(ann, "slot:approve", "withdraw")
        first, rebound = [await site.start(SLOT) for _ in range(2)]
        for run in (first, rebound):
            await site.task_is(run, "publish", "faulted")
        new = await register(ann, "reserve", "broken", "release")
        later = await site.start(SLOT, slot="back")
        await site.task_is(later, "publish", "faulted")
        entries = {run: await stack(site, run) for run in (first, rebound, later)}
        assert [(entry["action"], entry["version"]) for entry in entries[first]] == [
            ("reserve", old),
            ("slot:approve", approval),
        ]
        assert entries[later][0]["version"] == new

        third = await register(ann, "reserve", "release", "again", "${task.exit_code}")
        place = f"/v1/runs/{rebound}/compensations"
        number = entries[rebound][0]["number"]
        bound = await ann.post(f"{place}/{number}/rebind", json={"reason": "it is safer"})
        assert bound.status_code == 200, bound.text
        shown = (await ann.get(place)).json()["compensations"]
        assert [(entry["task"], entry["version"], bool(entry["rebound_by"])) for entry in shown] == [
            ("approve", approval, False),
            ("request", third, True),
        ], "what is undone first comes first; the newest version is taken where none is named"
        for run in (first, rebound, later):
            assert (await site.verb(run, VerbKind.FORCE_FAIL)).accepted
        for run in (first, rebound):
            assert (await site.ended(run)).state == "failed"
        assert undone[first] == ["withdraw", "release front"], "last in, first out, by the old version"
        assert undone[rebound] == ["withdraw", "release again 0"], "by the version that a person gave it"

        async def held() -> bool:
            entries = await stack(site, later)
            return bool(entries and entries[-1].get("held"))

        await until(held, "the new version to fail and to be held for a person")
        assert undone[later] == ["withdraw", "broken release"]
        place = f"/v1/runs/{later}/compensations/{entries[later][0]['number']}/rebind"
        assert (await ann.post(place, json={"version": old})).status_code == 200
        assert (await site.ended(later)).state == "failed"
        assert undone[later][-1] == "release back"
        records = await site.server.services.components.store.find_records(kind="run-event", job=rebound)
        (story,) = [str(record.body["detail"]) for record in records if record.body["kind"] == "compensation-rebound"]
        assert story == f"!{number} reserve from {old} to {third} by ann: it is safer"
        audit = (await ann.get("/v1/audit")).json()["entries"]
        assert [entry["on"] for entry in audit if entry["what"] == "run.rebind"] == [rebound, later]
