"""The selection service, through the processes' own wiring: rules choose the worklet of a late-bound task when it begins, and choose anew while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.live.case_site import GOOD, TENANT, CaseSite, case_site
from tests.live.test_case_worklets import BOUND, PLACE
from tests.live.test_exlets import done, incident_of, site_knows, steer, under_way
from tests.unit.apps.server.running import until

from forestay.domain.exlets.primitive import ActionTarget
from forestay.domain.flows.execution.case_names import case_of

pytestmark = pytest.mark.live

OOM = {
    "outcome": "fault", "reason": "signal", "signal": 9,
    "log_tail": "slurmstepd: error: Detected 1 oom_kill event in StepId=811.batch. Some of the step tasks have been OOM Killed.\n",
}  # fmt: skip


@dataclass
class House:
    """A flow of its own with a place of its own, and who writes rules for it."""

    site: CaseSite
    operator: httpx.AsyncClient
    name: str

    @property
    def flow(self) -> str:
        return PLACE.replace("PLACE", self.name).replace("name: late", f"name: {self.name}")

    async def stored(self, worklet: str) -> str:
        """The version of a worklet that is this house's alone."""
        text = BOUND.replace("NAME", worklet).replace(f"name: {worklet}", f"name: {self.name}-{worklet}")
        answer = await self.operator.post("/v1/flows", json={"text": text})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["version"])

    async def keep(self, exlet: str, *steps: dict[str, Any]) -> None:
        name = f"{self.name}-{exlet}"
        body: dict[str, Any] = {"name": name, "steps": list(steps)}
        answer = await self.operator.put(f"/v1/exlets/{name}", json={"text": str(body)})
        assert answer.status_code == 200, answer.text

    async def rule(self, condition: str, exlet: str, n: int, *, of: str = "", **more: Any) -> str:
        """A rule that acts, for the cornerstone of a case with this number."""
        rule_set = f"/v1/rules/flow/{of or self.name}"
        draft = {
            "type": "selection", "task": "inspect", "condition": condition, "conclusion": {"exlet": f"{self.name}-{exlet}"},
            "cornerstone": f"{exlet}-{n}", "context": {"case": {"data": {"n": n}}}, "confirmed": True,
        } | more  # fmt: skip
        made = await self.operator.post(rule_set, json=draft)
        assert made.status_code == 200, made.text
        rule = str(made.json()["rule"])
        state = await self.operator.post(f"{rule_set}/rules/{rule}/state", json={"state": "active"})
        assert state.status_code == 200, state.text
        return rule

    async def anew(self, case: str, wanted: str, order: str = "") -> None:
        """Choose anew until the answer says so: the copies of the rules are up to half a second old."""

        async def said() -> bool:
            answer = await self.operator.post(
                f"/v1/cases/{case}/items/inspect/choose", json={"id": order or uuid4().hex}
            )
            assert answer.status_code == 200, answer.text
            told = answer.json()
            return wanted in ("replaced" if told["replaced"] else told["detail"])

        await until(said, wanted)

    async def known(self, rule: str) -> None:
        """Wait until the worker goes by a rule."""
        assert self.site.worker is not None
        cache = self.site.worker.components.exceptions.rules

        async def there() -> bool:
            await cache.refresh()
            return any(one.find(rule) is not None for one in cache.sets_of(TENANT))

        await until(there, "the rule")


def selecting(flow: str, **give: object) -> dict[str, Any]:
    return {"action": "select", "worklet": {"flow": flow, "give": give}}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CaseSite]:
    async with case_site(request.param, tmp_path_factory.mktemp("selection")) as running:
        yield running


@pytest.fixture
def house(site: CaseSite) -> House:
    site.ran.clear()
    site.kept.clear()
    site.fate = lambda _claim: GOOD
    site.hold_back = lambda _claim: False
    return House(site, site.server.person("operator", tenant=TENANT), f"place-{uuid4().hex[:8]}")


@pytest.mark.ledger("P1-26")
async def test_the_rules_are_asked_before_the_place(site: CaseSite, house: House) -> None:
    quick, thorough = await house.stored("quick"), await house.stored("thorough")
    assert (await house.operator.put(f"/v1/places/{house.name}", json={"flow": quick})).status_code == 200
    first = await site.start(house.flow, n=7)
    assert (await site.result(first))["outputs"] == {"seen": "quick 7 1"}
    # A rule is added while the domain runs: the next task that begins is chosen for by it, with data of its case.
    await house.keep("thorough", selecting(thorough, factor="${params.n}"))
    await house.known(
        await house.rule(
            "case.data.n > 6 && item.data.n == case.data.n",
            "thorough",
            7,
            context={"case": {"data": {"n": 7}}, "item": {"data": {"n": 7}}},
        )
    )
    second, third = await site.start(house.flow, n=7), await site.start(house.flow, n=5)
    assert (await site.result(second))["outputs"] == {"seen": "thorough 7 7"}
    assert (await site.result(third))["outputs"] == {"seen": "quick 5 1"}


@pytest.mark.ledger("P1-26")
async def test_a_worklet_that_runs_is_replaced_only_when_another_is_chosen(site: CaseSite, house: House) -> None:
    quick, thorough = await house.stored("quick"), await house.stored("thorough")
    await house.keep("quick", selecting(quick))
    await house.keep("thorough", selecting(thorough, factor=3))
    rule = await house.rule("case.data.n >= 5", "quick", 5)
    await house.known(rule)
    site.hold_back = lambda claim: claim["name"] == "quick"
    case = await site.start(house.flow, n=5)
    running = case_of(case, "inspect@1", 0)
    await site_knows(site, running)
    await under_way(site, running, "quick")
    await house.anew(case, "the same worklet is chosen; the running one continues")
    # No rule answers any more: what runs is not stopped for nothing.
    gone = await house.operator.delete(f"/v1/rules/flow/{house.name}/rules/{rule}", params={"confirmed": "true"})
    assert gone.status_code == 200
    await house.anew(case, "no worklet is chosen now; the running one continues")
    assert (await site.engine.describe(running)).ended is None
    await house.rule("case.data.n == 5", "thorough", 5)
    await house.anew(case, "replaced")
    assert (await site.result(case))["outputs"] == {"seen": "thorough 5 3"}
    assert (await site.ended(running)).state == "failed"
    assert site.ran == ["before", "thorough", "after"]
    await house.anew(case, "the task has already ended: completed")


async def test_a_conclusion_that_is_no_worklet_fails_the_item_in_words(site: CaseSite, house: House) -> None:
    await house.keep("wrong", selecting(await house.stored("quick")))
    rule = await house.rule("true", "wrong", 5)
    # The exlet is changed after a rule has come to conclude it.
    await house.keep("wrong", {"action": "notify", "text": "no worklet"})
    await house.known(rule)
    case = await site.start(house.flow, n=5)
    await site.item_is(case, "inspect", "faulted")
    items = {one["id"]: one for one in (await site.engine.state(case))["items"]}
    assert f"rule flow/{house.name}#{rule} concludes no worklet" in items["inspect"]["reason"]


@pytest.mark.ledger("P1-37")
async def test_selection_and_exceptions_work_in_one_case(site: CaseSite, house: House) -> None:
    """The worklet is chosen by a rule, has a fault that another rule answers, and its case is suspended and continued meanwhile."""
    quick = await house.stored("quick")
    await house.keep("quick", selecting(quick))
    await house.keep("again", {"action": "resubmit"})
    await house.known(await house.rule("true", "quick", 5))
    abort = {"type": "abort", "task": "quick", "context": {"cause": "memory"}}
    await house.known(await house.rule('cause == "memory"', "again", 5, of=f"{house.name}-quick", **abort))
    site.fate = lambda claim: OOM if claim["name"] == "quick" and site.ran.count("quick") == 1 else GOOD
    site.hold_back = lambda claim: claim["name"] == "quick" and "quick" in site.ran
    case = await site.start(house.flow, n=5)
    running = case_of(case, "inspect@1", 0)
    await site_knows(site, running)
    await site.kept_some()
    # The second attempt runs: the first one's fault was answered by the rule.
    await done(
        site,
        await incident_of(site, case, "inspect"),
        steer("suspend", ActionTarget.CASE),
        steer("continue", ActionTarget.CASE),
    )
    site.hold_back = lambda _claim: False
    site.fate = lambda _claim: GOOD
    await site.let_go()
    assert (await site.result(case))["outputs"] == {"seen": "quick 5 1"}
    found = (await house.operator.get("/v1/incidents", params={"case": running})).json()["incidents"]
    assert [(one["type"], one["state"]) for one in found] == [("abort", "complete")]
