"""The selection service: rules choose the worklet of a late-bound task when it begins, and choose anew while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from uuid import uuid4

import pytest
from tests.live.case_site import GOOD, TENANT, CaseSite, case_site
from tests.live.test_case_worklets import PLACE, stored
from tests.live.test_exlets import done, incident_of, site_knows, steer, under_way

from holdfast.domain.exlets.exlet import Exlet, Step
from holdfast.domain.exlets.primitive import Notify, Select, Target, Worklet
from holdfast.domain.flows.case_names import case_of
from holdfast.services.replace_worklets import ReplaceWorklets

pytestmark = pytest.mark.live


class Rules:
    """Stands for a selection tree: the conclusions by place, tried in order."""

    def __init__(self) -> None:
        self.conclusions: dict[str, Exlet] = {}
        self.asked: list[tuple[str, Mapping[str, object]]] = []

    async def __call__(
        self, tenant: str, place: str, *, case: str, params: Mapping[str, object]
    ) -> tuple[str, Exlet] | None:
        assert tenant == TENANT
        self.asked.append((case, params))
        found = self.conclusions.get(place)
        return None if found is None else ("rule-1", found)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CaseSite]:
    async with case_site(request.param, tmp_path_factory.mktemp("selection")) as running:
        yield running


@pytest.fixture
def rules(site: CaseSite) -> Rules:
    assert site.worker is not None
    site.ran.clear()
    site.kept.clear()
    site.fate = lambda _claim: GOOD
    site.hold_back = lambda _claim: False
    made = Rules()
    site.worker.worklets.choose = made
    return made


@pytest.fixture
def place() -> str:
    return f"place-{uuid4().hex[:8]}"


def chosen(flow: str, **give: object) -> Exlet:
    return Exlet("choice", (Step(Select(Worklet(flow, give))),))


def replacing(site: CaseSite) -> ReplaceWorklets:
    assert site.worker is not None
    parts = site.server.services.parts
    return ReplaceWorklets(site.engine, parts.flows, site.worker.worklets)


async def anew(site: CaseSite, case: str, order: str = "") -> tuple[bool, str]:
    at = site.server.services.parts.clock.now()
    found = await replacing(site).replace(TENANT, case, "inspect", order=order or uuid4().hex, at=at, by="olga")
    return found.done, found.detail


@pytest.mark.ledger("P1-26")
async def test_the_rules_are_asked_before_the_place(site: CaseSite, rules: Rules, place: str) -> None:
    quick, thorough = await stored(site, "quick"), await stored(site, "thorough")
    operator = site.server.person("operator", tenant=TENANT)
    assert (await operator.put(f"/v1/places/{place}", json={"flow": quick})).status_code == 200
    first = await site.start(PLACE.replace("PLACE", place), n=5)
    assert (await site.result(first))["outputs"] == {"seen": "quick 5 1"}
    # A rule is added while the domain runs: the next task that begins is chosen for by it, with data of its case.
    rules.conclusions[place] = chosen(thorough, factor="${params.n}")
    second = await site.start(PLACE.replace("PLACE", place), n=7)
    assert (await site.result(second))["outputs"] == {"seen": "thorough 7 7"}
    assert rules.asked == [(first, {"n": 5}), (second, {"n": 7})]


@pytest.mark.ledger("P1-26")
async def test_a_worklet_that_runs_is_replaced_only_when_another_is_chosen(
    site: CaseSite, rules: Rules, place: str
) -> None:
    quick, thorough = await stored(site, "quick"), await stored(site, "thorough")
    rules.conclusions[place] = chosen(quick)
    site.hold_back = lambda claim: claim["name"] == "quick"
    case = await site.start(PLACE.replace("PLACE", place), n=5)
    running = case_of(case, "inspect@1", 0)
    await site_knows(site, running)
    await under_way(site, running, "quick")
    assert await anew(site, case) == (False, "the same worklet is chosen; what runs goes on")
    # No rule answers any more: what runs is not stopped for nothing.
    del rules.conclusions[place]
    assert await anew(site, case) == (False, "nothing is chosen for the place now; what runs goes on")
    assert (await site.engine.describe(running)).ended is None
    rules.conclusions[place] = chosen(thorough, factor=3)
    order = uuid4().hex
    assert (await anew(site, case, order))[0]
    assert (await site.result(case))["outputs"] == {"seen": "thorough 5 3"}
    assert (await site.ended(running)).state == "failed"
    assert site.ran == ["before", "thorough", "after"]
    assert await anew(site, case, order) == (False, "the item has ended already: completed")


async def test_a_conclusion_that_is_no_worklet_fails_the_item_in_words(
    site: CaseSite, rules: Rules, place: str
) -> None:
    rules.conclusions[place] = Exlet("wrong", (Step(Notify("no worklet")),))
    case = await site.start(PLACE.replace("PLACE", place), n=5)
    await site.item_is(case, "inspect", "faulted")
    items = {one["id"]: one for one in (await site.engine.state(case))["items"]}
    assert "rule rule-1 concludes no worklet" in items["inspect"]["reason"]


@pytest.mark.ledger("P1-37")
async def test_selection_and_exceptions_work_in_one_case(site: CaseSite, rules: Rules, place: str) -> None:
    quick, thorough = await stored(site, "quick"), await stored(site, "thorough")
    rules.conclusions[place] = chosen(quick)
    site.hold_back = lambda claim: claim["name"] == "quick"
    case = await site.start(PLACE.replace("PLACE", place), n=5)
    running = case_of(case, "inspect@1", 0)
    await site_knows(site, running)
    await under_way(site, running, "quick")
    # The case is suspended and continued, its item is given another worklet, and the selected worklet has an exception of its own.
    await done(
        site, await incident_of(site, case, "inspect"), steer("suspend", Target.CASE), steer("continue", Target.CASE)
    )
    await done(site, await incident_of(site, case, "inspect"), Select(Worklet(thorough, {"factor": "${params.n}"})))
    assert (await site.result(case))["outputs"] == {"seen": "thorough 5 5"}
