"""Every verb on items, cases and those that started them, sent over HTTP as a person or a rule sends it: real Temporal, real store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
from tests.live.case_site import BAD, GOOD, TENANT, CaseSite, case_site
from tests.live.test_cases import CHAIN, COMPENSATED, SCATTER, named
from tests.unit.apps.server.asks import problem, read, steer
from tests.unit.apps.server.running import until

from forestay.domain.flows.execution.case_names import case_of

pytestmark = pytest.mark.live

HELD = CHAIN.replace("command: [echo, one]", "command: [echo, one], when_failed: hold")
"""The first task waits for a person when it fails."""
OTHER = """
forestay: 1
name: other-way
tasks: {detour: {command: [echo, detour]}}
"""
LOOP = """
forestay: 1
name: looped
tasks:
  refine:
    loop:
      at_most: 5
      until: iteration >= 2
      tasks: {fit: {command: [fit]}}
  last: {command: [echo], after: [refine]}
"""
DEEP = """
forestay: 1
name: outermost
flows:
  middle:
    name: middle
    flows:
      innermost:
        name: innermost
        tasks: {work: {command: [work]}, more: {command: [more], after: [work]}}
    tasks: {inner: {flow: innermost}}
tasks:
  outer: {flow: middle}
  last: {command: [last], after: [outer]}
"""
LATE = """
forestay: 1
name: late
tasks:
  slow: {command: [slow], deadline: DEADLINE, when_failed: ignore}
  last: {command: [last], after: [slow]}
"""
LATE_CASE = """
forestay: 1
name: late-case
deadline: 1 s
tasks:
  before: {command: [do], compensate: {command: [undo]}}
  slow: {command: [slow], after: [before]}
"""
FORGOTTEN = """
forestay: 1
name: forgotten
tasks:
  first: {command: [echo], wait: WAIT, max_attempts: 2, when_exhausted: hold}
  second: {command: [echo], after: [first]}
"""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CaseSite]:
    async with case_site(request.param, tmp_path_factory.mktemp("verbs")) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(site: CaseSite) -> None:
    site.ran.clear()
    site.fate = lambda _claim: GOOD
    site.hold_back = lambda _claim: False
    site.kept.clear()


async def say(site: CaseSite, case: str, verb: str, item: str = "", **more: Any) -> httpx.Response:
    operator = site.server.person("operator", tenant=TENANT, subject="olga")
    return await operator.post(f"/v1/cases/{case}/verbs", json={"verb": verb, "item": item} | more)


async def obeyed(site: CaseSite, case: str, verb: str, item: str = "", **more: Any) -> None:
    answer = await say(site, case, verb, item, **more)
    assert answer.status_code == 200, answer.text
    assert answer.json()["accepted"]


async def jobs(site: CaseSite, case: str) -> list[tuple[str, str]]:
    """The jobs of a case by name, and how they stand."""
    await site.server.refresh()
    person = site.server.person("viewer", tenant=TENANT)
    found = (await person.get("/v1/jobs", params={"case": case, "sort": "created"})).json()["jobs"]
    return [(job["name"], job["state"]) for job in found]


async def under_way(site: CaseSite, *names: str) -> None:
    """Wait until jobs of these names run; the site must hold them back."""

    async def there() -> bool:
        return {claim["name"] for _, claim in site.kept} >= set(names)

    await until(there, f"{names} to run")


def fails_once(site: CaseSite, name: str) -> Any:
    return lambda claim: BAD if claim["name"] == name and site.ran.count(name) == 1 else GOOD


# Items


@pytest.mark.ledger("P0-14", "P1-36")
async def test_a_failed_task_is_submitted_again(site: CaseSite) -> None:
    site.fate = fails_once(site, "first")
    case = await site.start(HELD)
    await site.item_is(case, "first", "faulted")
    assert await jobs(site, case) == [("first", "failed")]
    await obeyed(site, case, "redo", "first")
    assert (await site.ended(case)).state == "completed"
    # Another job of the same item; the one that failed stays as it is.
    assert await jobs(site, case) == [("first", "failed"), ("first", "completed"), ("second", "completed")]


@pytest.mark.ledger("P1-36")
async def test_a_task_that_was_done_is_done_again_with_what_came_after_it(site: CaseSite) -> None:
    site.hold_back = named("second")
    case = await site.start(CHAIN)
    await under_way(site, "second")
    site.hold_back = lambda _claim: False
    await obeyed(site, case, "redo", "first")
    assert (await site.ended(case)).state == "completed"
    assert site.ran == ["first", "first", "second"]
    assert sorted(await jobs(site, case)) == [
        ("first", "completed"),
        ("first", "completed"),
        ("second", "cancelled"),
        ("second", "completed"),
    ]


@pytest.mark.ledger("P1-36")
async def test_a_task_is_skipped(site: CaseSite) -> None:
    site.hold_back = named("first")
    case = await site.start(CHAIN)
    await under_way(site, "first")
    await obeyed(site, case, "skip", "first")
    assert (await site.ended(case)).state == "completed"
    assert await site.items(case) == {"first": "skipped", "second": "completed"}
    assert await jobs(site, case) == [("first", "cancelled"), ("second", "completed")]


@pytest.mark.ledger("P1-36")
async def test_a_task_is_replaced_by_another_job(site: CaseSite) -> None:
    commands: list[list[str]] = []

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        commands.append(claim["specification"]["command"])
        return BAD if claim["specification"]["command"] == ["echo", "one"] else GOOD

    site.fate = fate
    case = await site.start(HELD)
    await site.item_is(case, "first", "faulted")
    wrong = await say(site, case, "replace", "first", changes={"tenant": "another"})
    assert "cannot be changed" in problem(wrong, 409)["detail"]
    await obeyed(site, case, "replace", "first", changes={"command": ["echo", "anew"]})
    assert (await site.ended(case)).state == "completed"
    assert commands == [["echo", "one"], ["echo", "anew"], ["echo", "two"]]


@pytest.mark.ledger("P1-36")
async def test_a_task_is_replaced_by_another_flow(site: CaseSite) -> None:
    person = site.server.person("submitter", tenant=TENANT)
    version = (await person.post("/v1/flows", json={"text": OTHER})).json()["version"]
    site.fate = lambda claim: BAD if claim["name"] == "first" else GOOD
    case = await site.start(HELD)
    await site.item_is(case, "first", "faulted")
    await obeyed(site, case, "replace", "first", changes={"flow": version})
    assert (await site.ended(case)).state == "completed"
    assert site.ran == ["first", "detour", "second"]
    assert (await site.engine.describe(case_of(case, "first@2", 0))).version == version


@pytest.mark.ledger("P1-36")
async def test_a_loop_is_looped_once_more(site: CaseSite) -> None:
    site.hold_back = named("last")
    case = await site.start(LOOP)
    await under_way(site, "last")
    assert site.ran == ["fit", "fit"]
    site.hold_back = lambda _claim: False
    await obeyed(site, case, "redo", "refine")
    assert (await site.ended(case)).state == "completed"
    assert site.ran == ["fit"] * 4 + ["last"]


async def test_an_item_inside_a_loop_is_steered(site: CaseSite) -> None:
    site.hold_back = named("fit")
    case = await site.start(LOOP)
    await under_way(site, "fit")
    inner = next(item for item in await site.items(case) if item.endswith("fit"))
    await obeyed(site, case, "skip", inner)
    site.hold_back = lambda _claim: False
    assert (await site.ended(case)).state == "completed"
    assert site.ran == ["fit", "last"]


async def test_of_a_scatter_only_what_failed_is_done_again(site: CaseSite) -> None:
    site.fate = lambda claim: BAD if claim.get("index") == 3 and site.ran.count("many[3]") == 1 else GOOD
    text = SCATTER.replace('[0, "${params.n}"]}}', '[0, "${params.n}"]}}, when_failed: hold')
    case = await site.start(text, n=6)
    await site.item_is(case, "many", "faulted")
    await obeyed(site, case, "redo", "many", only_failed=True)
    assert (await site.ended(case)).state == "completed"
    assert sorted(site.ran) == sorted([*(f"many[{n}]" for n in range(6)), "many[3]", "last"])


@pytest.mark.ledger("P0-19")
async def test_a_task_is_forced_to_complete(site: CaseSite) -> None:
    site.hold_back = named("first")
    case = await site.start(CHAIN)
    await under_way(site, "first")
    await obeyed(site, case, "force-complete", "first", reason="seen on the disk")
    assert (await site.ended(case)).state == "completed"
    assert await site.items(case) == {"first": "forced_complete", "second": "completed"}
    late = await site.kept[0][0].end(site.kept[0][1])
    assert late == ["superseded"], "what ends after it was forced does not count"


@pytest.mark.ledger("P0-19")
async def test_a_task_is_forced_to_fail(site: CaseSite) -> None:
    site.hold_back = named("first")
    case = await site.start(CHAIN)
    await under_way(site, "first")
    await obeyed(site, case, "force-fail", "first", reason="it will never end")
    assert (await site.ended(case)).state == "completed", "the tasks after it go on"
    assert await site.items(case) == {"first": "failed", "second": "completed"}


async def test_an_item_is_removed_with_what_comes_after_it(site: CaseSite) -> None:
    site.hold_back = named("first")
    case = await site.start(CHAIN)
    await under_way(site, "first")
    await obeyed(site, case, "remove", "first")
    await site.ended(case)
    assert await site.items(case) == {"first": "cancelled", "second": "cancelled"}
    assert await jobs(site, case) == [("first", "cancelled")]


async def test_a_suspended_item_holds_its_jobs_and_nothing_else(site: CaseSite) -> None:
    text = "{forestay: 1, name: side, tasks: {one: {command: [a]}, two: {command: [b], after: [one]}, free: {command: [c]}}}"
    site.hold_back = named("one")
    case = await site.start(text)
    await under_way(site, "one")
    await obeyed(site, case, "suspend", "two", holder="incident-1:step-2")
    await site.let_go()
    site.hold_back = lambda _claim: False
    await site.item_is(case, "one", "completed")
    await site.item_is(case, "free", "completed")
    foreign = await say(site, case, "continue", "two")
    assert "does not hold" in problem(foreign, 409)["detail"]
    assert (await site.items(case))["two"] == "waiting"
    await obeyed(site, case, "continue", "two", holder="incident-1:step-2")
    assert (await site.ended(case)).state == "completed"
    assert site.ran[-1] == "two"


async def test_an_exception_is_raised(site: CaseSite) -> None:
    site.hold_back = named("first")
    case = await site.start(CHAIN)
    await under_way(site, "first")
    await obeyed(site, case, "raise", "first", id="r-1", reason="too cold", changes={"type": "item-external"})
    await obeyed(site, case, "raise", id="r-2", reason="no more money", changes={"type": "case-external"})
    store = site.server.services.components.store

    async def told() -> Any:
        records = [await store.get_record(f"case:{case}:verb:{name}") for name in ("r-1", "r-2")]
        return [record.body for record in records if record is not None] if all(records) else None

    assert await until(told, "the exceptions to be recorded") == [
        {"kind": "item-external", "item": "first", "detail": "too cold"},
        {"kind": "case-external", "item": "", "detail": "no more money"},
    ]
    await site.let_go()
    assert (await site.ended(case)).state == "completed"


# Cases


async def test_a_case_is_restarted(site: CaseSite) -> None:
    site.hold_back = named("second")
    case = await site.start(CHAIN)
    await under_way(site, "second")
    site.hold_back = lambda _claim: False
    await obeyed(site, case, "restart")
    assert (await site.ended(case)).state == "completed"
    assert site.ran == ["first", "first", "second"]


@pytest.mark.ledger("P0-19")
async def test_a_case_is_forced_to_complete(site: CaseSite) -> None:
    site.hold_back = named("second")
    case = await site.start(CHAIN)
    await under_way(site, "second")
    await obeyed(site, case, "force-complete", reason="good enough")
    assert (await site.ended(case)).state == "forced_complete"
    assert await jobs(site, case) == [("first", "completed"), ("second", "cancelled")]


@pytest.mark.ledger("P0-19")
async def test_a_case_is_forced_to_fail_and_is_compensated(site: CaseSite) -> None:
    undone: list[str] = []

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        command = claim["specification"]["command"]
        if command[0] == "undo":
            undone.append(command[1])
        return GOOD

    site.fate = fate
    site.hold_back = lambda claim: claim["name"] == "d"
    case = await site.start(COMPENSATED)
    await under_way(site, "d")
    await obeyed(site, case, "force-fail", reason="the grant was withdrawn")
    assert (await site.ended(case)).state == "failed"
    assert undone == ["c", "b", "a"]


async def test_a_held_compensation_is_done_again_or_settled(site: CaseSite) -> None:
    undone: list[str] = []
    broken = {"b", "a"}

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        command = claim["specification"]["command"]
        if command[0] == "undo":
            undone.append(command[1])
            return BAD if command[1] in broken else GOOD
        return BAD if claim["name"] == "d" else GOOD

    async def held(number: int) -> None:
        async def there() -> bool:
            stack = (await site.engine.state(case))["stack"]
            return bool(stack) and stack[-1]["number"] == number and bool(stack[-1].get("held"))

        await until(there, f"compensation {number} to be held")

    site.fate = fate
    case = await site.start(COMPENSATED.replace("compensate: {", "compensate: {tries: 1, "))
    await held(2)
    assert "is not the compensation" in problem(await say(site, case, "redo", "!1"), 409)["detail"]
    broken.discard("b")
    await obeyed(site, case, "redo", "!2")
    await held(1)
    await obeyed(site, case, "skip", "!1", reason="undone by hand")
    assert (await site.ended(case)).state == "failed"
    assert undone == ["c", "b", "b", "a"]
    (settled,) = (await site.engine.state(case))["settled"]
    assert settled == [1, "a", "skip", "olga", "undone by hand"]


# Those that started a case


async def test_ancestors_are_suspended_and_continued(site: CaseSite) -> None:
    site.hold_back = named("work")
    top = await site.start(DEEP)
    await under_way(site, "work")
    middle = case_of(top, "outer@1", 0)
    inner = case_of(middle, "inner@1", 0)
    await obeyed(site, inner, "suspend", ancestors=True, holder="incident-7:1")
    for case in (inner, middle, top):
        await until(_holds(site, case, "incident-7:1"), f"{case} to be held")
    site.hold_back = lambda _claim: False
    await site.let_go()
    await obeyed(site, inner, "continue", ancestors=True, holder="incident-7:1")
    assert (await site.ended(top)).state == "completed"
    assert site.ran == ["more", "last"]
    for case in (inner, middle):
        assert (await site.engine.describe(case)).state == "completed"


async def test_ancestors_are_removed(site: CaseSite) -> None:
    site.hold_back = named("work")
    top = await site.start(DEEP)
    await under_way(site, "work")
    inner = case_of(case_of(top, "outer@1", 0), "inner@1", 0)
    await obeyed(site, inner, "remove", ancestors=True)
    assert (await site.ended(top)).state == "removed"
    assert (await site.ended(inner)).state == "removed"
    assert await jobs(site, inner) == [("work", "cancelled")]
    assert site.ran == []


async def test_a_sub_case_that_is_forced_to_fail_fails_its_item(site: CaseSite) -> None:
    site.hold_back = named("work")
    top = await site.start(DEEP)
    await under_way(site, "work")
    await obeyed(site, case_of(case_of(top, "outer@1", 0), "inner@1", 0), "force-fail")
    assert (await site.ended(top)).state == "failed"
    assert (await site.items(top))["outer"] == "failed"


# Time


@pytest.mark.parametrize(
    ("deadline", "ends"),
    [("1 s", {"slow": "failed", "last": "completed"}), ("{seconds: 1 s, then: report}", {"slow": "running"})],
    ids=["fails", "is reported"],
)
async def test_an_item_is_late(site: CaseSite, deadline: str, ends: dict[str, str]) -> None:
    site.hold_back = named("slow")
    case = await site.start(LATE.replace("DEADLINE", deadline))
    await until(_recorded(site, case, "item-late"), "the item to be reported as late")
    for item, state in ends.items():
        await site.item_is(case, item, state)
    site.hold_back = lambda _claim: False
    if ends["slow"] == "running":
        await site.let_go()
    assert (await site.ended(case)).state == "completed"


async def test_a_case_is_late_and_is_compensated(site: CaseSite) -> None:
    site.hold_back = named("slow")
    case = await site.start(LATE_CASE)
    assert (await site.ended(case)).state == "failed"
    assert await _recorded(site, case, "case-late")()
    assert site.ran.count("before") >= 1
    assert ("slow", "cancelled") in await jobs(site, case)
    assert (await site.engine.state(case))["reason"] == "it was not done within 1 s"


# What may follow what


@pytest.mark.ledger("P0-20")
@pytest.mark.parametrize("wait", ["true", "false"], ids=["waited for", "fire and forget"])
async def test_a_job_takes_only_the_steps_that_its_state_allows(site: CaseSite, wait: str) -> None:
    """Submitted, running, failed, submitted again, running, completed; at each place what may not follow is refused."""
    operator = site.server.person("operator", tenant=TENANT)
    site.hold_back = named("first")
    case = await site.start(FORGOTTEN.replace("WAIT", wait))

    async def refused(*verbs: str, attempt: int) -> None:
        before = await read(operator, job)
        for verb in verbs:
            body: dict[str, Any] = {"expected_attempt": attempt, "reason": "r"} if verb.startswith("force") else {}
            problem(await steer(operator, job, verb, **body), 409)
        assert (await read(operator, job))["state"] == before["state"]

    await under_way(site, "first")
    ((pilot, claim),) = site.kept
    job = claim["job"]
    assert (await read(operator, job))["state"] == "running"
    await refused("retry", "continue", attempt=1)
    await refused("force-complete", "force-fail", attempt=2)
    site.kept.clear()
    assert await pilot.end(claim, **BAD) == ["committed"]  # failed; the second try is the re-submission
    await under_way(site, "first")
    ((pilot, again),) = site.kept
    assert (again["job"], again["attempt"]) == (job, 2)
    await pilot.end(claim)  # of an attempt that is over: it changes nothing
    assert ((await read(operator, job))["state"], (await read(operator, job))["attempt"]) == ("running", 2)
    assert await pilot.end(again, **BAD) == ["committed"]
    assert (await read(operator, job))["state"] == "faulted"
    await refused("continue", attempt=2)
    site.kept.clear()
    assert (await steer(operator, job, "retry")).status_code == 200
    await under_way(site, "first")
    ((pilot, third),) = site.kept
    assert await pilot.end(third) == ["committed"]
    site.kept.clear()
    assert (await read(operator, job))["state"] == "completed"
    await refused("cancel", "hold", "continue", "retry", "force-complete", "force-fail", attempt=3)
    assert (await site.ended(case)).state == "completed"


@pytest.mark.ledger("P0-20")
async def test_a_case_takes_only_the_steps_that_its_state_allows(site: CaseSite) -> None:
    site.hold_back = named("second")
    case = await site.start(CHAIN)
    await under_way(site, "second")
    before = await site.items(case)
    for verb, item, why in (
        ("skip", "first", "ended already"),
        ("force-complete", "first", "ended already"),
        ("force-fail", "first", "ended already"),
        ("remove", "first", "ended already"),
        ("suspend", "first", "ended already"),
        ("continue", "second", "does not hold"),
        ("continue", "", "does not hold"),
        ("skip", "", "is for items"),
        ("replace", "", "is for items"),
        ("redo", "third", "has no item"),
    ):
        detail = problem(await say(site, case, verb, item), 409)["detail"]
        assert why in detail, (verb, item, detail)
    assert "round 1" in problem(await say(site, case, "redo", "second", round=7), 409)["detail"]
    assert await site.items(case) == before
    await site.let_go()
    assert (await site.ended(case)).state == "completed"
    for verb in ("redo", "restart", "suspend", "continue", "force-complete", "force-fail", "remove", "raise"):
        problem(await say(site, case, verb), 409)
    assert (await site.engine.describe(case)).state == "completed"


@pytest.mark.ledger("P0-20")
async def test_a_failed_case_is_only_compensated(site: CaseSite) -> None:
    site.fate = lambda claim: BAD if claim["name"] == "d" else GOOD
    site.hold_back = lambda claim: claim["specification"]["command"][0] == "undo"
    case = await site.start(COMPENSATED)

    async def undoing() -> bool:
        return bool(site.kept)

    await until(undoing, "a compensation to run")
    for verb, item in (("redo", "d"), ("skip", "d"), ("redo", ""), ("force-complete", ""), ("force-fail", "")):
        problem(await say(site, case, verb, item), 409)
    site.hold_back = lambda _claim: False
    await site.let_go()
    assert (await site.ended(case)).state == "failed"


def _holds(site: CaseSite, case: str, holder: str) -> Any:
    async def there() -> bool:
        return holder in (await site.engine.state(case))["holders"]

    return there


def _recorded(site: CaseSite, case: str, kind: str) -> Any:
    store = site.server.services.components.store

    async def there() -> bool:
        records = await store.find_records(kind="case-event", job=case, tenant=TENANT)
        return kind in [record.body["kind"] for record in records]

    return there
