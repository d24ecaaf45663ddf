"""Three requests to a real server on SQLite: a job is submitted, claimed, and fails in a way that a promoted rule answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.system.walk.recording import Walk, walked
from tests.unit.apps.server.asks import read, submit_one
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.rule_set import RuleSetId, RuleSetLevel
from forestay.domain.rules.rule_tree import Conclusion
from forestay.services.rules.rule_editor import Edited, RuleDraft
from forestay.services.rules.rule_store import DOMAIN

TENANT = "walk"
GIB = 1 << 30
FAILED: dict[str, Any] = {
    "outcome": "failure",
    "exit_code": 137,
    "oom_kills": 1,
    "peak_memory": GIB,
    "log_tail": "Killed\n",
}


async def walk_scenes(folder: Path) -> dict[str, Walk]:
    """The walk of each scene, the second time that it is played: the first one fills caches."""
    domain = Domain(f"sqlite:///{folder / 'walk.db'}", folder)
    async with domain.server() as server:
        await _promote_rule(server)
        pilot = await ScriptedPilot.register(server, TENANT)
        person = server.person("submitter", tenant=TENANT)
        walks: dict[str, Walk] = {}
        for _ in range(2):
            with walked() as walks["submission"]:
                job = await submit_one(person, resources={"memory": GIB})
            with walked() as walks["claim"]:
                claim = await pilot.claim_one()
            with walked() as walks["failure"]:
                assert await pilot.end(claim, **FAILED) == ["committed"]
            known = await read(person, job)
            assert (known["state"], known["resources"]["memory"]) == ("available", 2 * GIB), "the rule answered"
            again = await pilot.claim_one()
            assert await pilot.end(again) == ["committed"]
    return walks


async def _promote_rule(server: RunningServer) -> None:
    editor = server.services.rule_editor
    rules = RuleSetId(TENANT, RuleSetLevel.DOMAIN, DOMAIN)
    conclusion = Conclusion(
        steps=({"action": "resubmit", "how": "changed", "needs": {"memory": {"factor": 2, "at_most": 8 * GIB}}},)
    )
    draft = RuleDraft(
        rules, ExceptionType.ABORT, "", 'cause == "memory"', conclusion, "reference-1", {"cause": "memory"}
    )
    made = await editor.add(draft, by="ann", confirmed=True)
    assert isinstance(made, Edited), made
    promoted = await editor.promote(rules, made.rule, by="ben")
    assert isinstance(promoted, Edited), promoted
