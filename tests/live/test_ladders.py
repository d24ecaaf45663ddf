"""The model of paper P2 on a real Temporal, through the processes' own wiring: a dispatcher, ladders by configuration, and compensations at their end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.live.case_site import GOOD, TENANT, CaseSite, case_site
from tests.unit.apps.server.running import until

from forestay.domain.flows.execution.case_names import job_of

pytestmark = pytest.mark.live

FLOW = """
forestay: 1
name: NAME
tasks:
  reserve: {command: [do, reserve], compensate: {command: [undo, reserve]}}
  charge: {command: [do, charge], after: [reserve], compensate: {command: [undo, charge]}}
  publish: {command: [do, publish], after: [charge], when_failed: hold, compensate: {command: [undo, publish]}}
  bill: {command: [do, bill], after: [publish]}
  remind: {command: [do, remind], after: [charge], wait: false}
"""
"""A failed `publish` by itself would wait for a person: the case ends only because it is rolled back."""
DONE = ["do reserve", "do charge"]
NO_ROUTE = "ssh: connect to host approvals port 22: No route to host\n"
NO_MODULE = "Traceback (most recent call last):\n  File \"bill.py\", line 1, in <module>\nModuleNotFoundError: No module named 'prices'\n"
FULL = "OSError: [Errno 28] No space left on device: 'slot.json'\n"
SETTINGS: dict[str, Any] = {
    "ladders": {
        "short": {"levels": [{"wait": 0}, {"wait": "1 s", "tries": 2}]},
        "brief": {"levels": [{"wait": 0}]},
        "patient": {"levels": [{"wait": 0, "tries": 9}]},
    },
    "budgets": {"causes": {"disk": 1}},
    "unanswered": {"*": "dispatch short", "memory": "hold"},
}


@pytest.fixture(params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CaseSite]:
    async with case_site(request.param, tmp_path, **SETTINGS) as running:
        running.ran = Ran()
        yield running


class Ran(list[str]):
    """The commands in their order; `remind`, for which nobody waits, is left out."""

    def note(self, claim: Mapping[str, Any]) -> str:
        words = " ".join(claim["specification"]["command"])
        if words != "do remind":
            self.append(words)
        return words

    def append(self, words: str) -> None:
        if words.startswith(("do ", "undo ")):
            super().append(words)


def failing(site: CaseSite, **printed: tuple[str, int]) -> None:
    """Some tasks print this and fail, so many times."""
    left = {f"do {name}": many for name, (_, many) in printed.items()}
    assert isinstance(site.ran, Ran)
    ran = site.ran

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        words = ran.note(claim)
        if left.get(words, 0) > 0:
            left[words] -= 1
            return {"outcome": "fault", "exit_code": 1, "log_tail": printed[words.removeprefix("do ")][0]}
        return GOOD

    site.fate = fate


async def story(site: CaseSite, case: str, item: str) -> list[str]:
    """What ladders wrote into the story of an item's job."""
    name = job_of(case, f"{item}@1", 0)
    found = (await site.server.services.components.store.get([name]))[name].document
    return [line.note.partition("; incident")[0] for line in found.history if line.by.startswith("exlet:")]


async def decisions(site: CaseSite, case: str) -> list[tuple[str, str]]:
    """Of each incident of a case, in their order, where it stands and who decided it."""
    person = site.server.person("viewer", tenant=TENANT)

    async def told() -> list[tuple[str, str]] | None:
        await site.server.refresh()
        found = (await person.get("/v1/incidents", params={"case": case, "sort": "at"})).json()["incidents"]
        whole = [(await person.get(f"/v1/incidents/{one['id']}")).json() for one in found]
        stand = [(one["state"], one["decisions"][0]["by"].partition("#")[0]) for one in whole]
        return stand if all(state not in ("open", "acting") for state, _ in stand) else None

    found: list[tuple[str, str]] = await until(told, "every incident to be decided")
    return found


@pytest.mark.ledger("P2-03", "P2-05", "P2-06", "P2-07")
async def test_what_may_pass_is_tried_again_in_levels_and_joins_the_way_of_success(site: CaseSite) -> None:
    failing(site, publish=(NO_ROUTE, 2), bill=(NO_MODULE, 1))
    case = await site.start(FLOW.replace("NAME", "passing"))
    # The dispatcher tells the two apart: the network may come back, a module that is missing stays missing.
    assert (await site.ended(case)).state == "failed"
    assert site.ran == [*DONE, *["do publish"] * 3, "do bill", "undo publish", "undo charge", "undo reserve"]
    assert await story(site, case, "publish") == [
        "level 0 of ladder short, after 0 s",
        "level 1 of ladder short, after 1 s",
    ]
    assert await story(site, case, "bill") == []
    assert await decisions(site, case) == [("complete", "house policy")] * 3
    # Nothing fails: nothing is undone.
    failing(site)
    site.ran.clear()
    good = await site.start(FLOW.replace("NAME", "passing"))
    assert (await site.ended(good)).state == "completed"
    assert site.ran == [*DONE, "do publish", "do bill"]


@pytest.mark.ledger("P2-04", "P2-05", "P2-07")
async def test_after_the_last_level_the_case_is_compensated(site: CaseSite) -> None:
    failing(site, publish=(NO_ROUTE, 99))
    case = await site.start(FLOW.replace("NAME", "lasting"))
    assert (await site.ended(case)).state == "failed"
    assert site.ran == [*DONE, *["do publish"] * 4, "undo charge", "undo reserve"]
    assert (await story(site, case, "publish"))[-1] == ("rollback: the ladder short has 3 tries, and all were made")


@pytest.mark.ledger("P2-04", "P2-05", "P2-07")
async def test_a_rule_comes_before_the_house_and_a_cause_has_its_budget(site: CaseSite) -> None:
    operator = site.server.person("operator", tenant=TENANT)
    for cause, ladder in (("network", "brief"), ("disk", "patient")):
        text = f"name: {ladder}\nsteps: [{{action: ladder, ladder: {ladder}}}]\n"
        assert (await operator.put(f"/v1/exlets/{ladder}", json={"text": text})).status_code == 200
        rule = {
            "type": "abort", "task": "publish", "condition": f'cause == "{cause}"', "conclusion": {"exlet": ladder},
            "cornerstone": cause, "context": {"cause": cause},
        }  # fmt: skip
        made = (await operator.post("/v1/rules/flow/ruled", json=rule)).json()
        answer = await operator.post(f"/v1/rules/flow/ruled/rules/{made['rule']}/state", json={"state": "active"})
        assert answer.status_code == 200
    failing(site, publish=(NO_ROUTE, 99))
    case = await site.start(FLOW.replace("NAME", "ruled"))
    assert (await site.ended(case)).state == "failed"
    assert site.ran == [*DONE, *["do publish"] * 2, "undo charge", "undo reserve"]
    assert await decisions(site, case) == [("complete", "flow/ruled")] * 2
    failing(site, publish=(FULL, 99))
    site.ran.clear()
    full = await site.start(FLOW.replace("NAME", "ruled"))
    assert (await site.ended(full)).state == "failed"
    assert site.ran == [*DONE, *["do publish"] * 2, "undo charge", "undo reserve"]
    assert (await story(site, full, "publish"))[-1] == "rollback: 1 tries for disk; 1 are allowed"


async def test_a_job_that_nobody_waits_for_fails_alone(site: CaseSite) -> None:
    failing(site, remind=(NO_MODULE, 1))
    case = await site.start(FLOW.replace("NAME", "alone"))
    assert (await site.ended(case)).state == "completed"
    assert site.ran == [*DONE, "do publish", "do bill"]
