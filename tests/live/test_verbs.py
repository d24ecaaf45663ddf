"""Every verb on tasks, runs and those that started them, sent over HTTP as a person or a rule sends it: real Temporal, real store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import httpx
import pytest
from tests.live.run_site import BAD, GOOD, TENANT, RunSite, run_site
from tests.live.test_runs import CHAIN, COMPENSATED, SCATTER, named
from tests.unit.apps.server.asks import problem, read, steer
from tests.unit.apps.server.running import until

from forestay.domain.flows.execution.run_names import run_of

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
LATE_RUN = """
forestay: 1
name: late-run
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
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site(request.param, tmp_path_factory.mktemp("verbs")) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(site: RunSite) -> None:
    site.ran.clear()
    site.fate = lambda _claim: GOOD
    site.hold_back = lambda _claim: False
    site.kept.clear()


async def say(site: RunSite, run: str, verb: str, task: str = "", **more: Any) -> httpx.Response:
    operator = site.server.person("operator", tenant=TENANT, subject="olga")
    return await operator.post(f"/v1/runs/{run}/verbs", json={"verb": verb, "task": task} | more)


async def obeyed(site: RunSite, run: str, verb: str, task: str = "", **more: Any) -> None:
    answer = await say(site, run, verb, task, **more)
    assert answer.status_code == 200, answer.text
    assert answer.json()["accepted"]


async def jobs(site: RunSite, run: str) -> list[tuple[str, str]]:
    """The jobs of a run by name, and how they stand."""
    await site.server.refresh()
    person = site.server.person("viewer", tenant=TENANT)
    jobs = (await person.get("/v1/jobs", params={"run": run, "sort": "created"})).json()["jobs"]
    return [(job["name"], job["state"]) for job in jobs]


async def _within(run: str, listed: Callable[[], Awaitable[list[str]]]) -> bool:
    return run in await listed()


async def _without(run: str, listed: Callable[[], Awaitable[list[str]]]) -> bool:
    return run not in await listed()


async def under_way(site: RunSite, *names: str) -> None:
    """Wait until jobs of these names run; the site must hold them back."""

    async def there() -> bool:
        return {claim["name"] for _, claim in site.kept} >= set(names)

    await until(there, f"{names} to run")


def fails_once(site: RunSite, name: str) -> Any:
    return lambda claim: BAD if claim["name"] == name and site.ran.count(name) == 1 else GOOD


# Tasks


@pytest.mark.ledger("P0-14", "P1-36")
async def test_a_failed_task_is_submitted_again(site: RunSite) -> None:
    site.fate = fails_once(site, "first")
    run = await site.start(HELD)
    await site.task_is(run, "first", "faulted")
    assert await jobs(site, run) == [("first", "failed")]
    await obeyed(site, run, "redo", "first")
    assert (await site.ended(run)).state == "completed"
    # Another job of the same task; the one that failed stays as it is.
    assert await jobs(site, run) == [("first", "failed"), ("first", "completed"), ("second", "completed")]


@pytest.mark.finding("F-D1")
async def test_a_run_that_waits_for_somebody_is_listed_with_who_can_let_it_go_on(site: RunSite) -> None:
    site.fate = fails_once(site, "first")
    run = await site.start(HELD)
    await site.task_is(run, "first", "faulted")
    person = site.server.person("viewer", tenant=TENANT)

    async def held() -> list[str]:
        answer = (await person.get("/v1/runs", params={"state": "suspended,held"})).json()
        return [found["id"] for found in answer["runs"]]

    await until(lambda: _within(run, held), "the run to be listed")
    assert (await person.get("/v1/inbox")).json()["held_runs"] >= 1
    (wait,) = (await person.get(f"/v1/runs/{run}")).json()["waits"]
    assert (wait["task"], wait["who"]) == ("first", "ada or an operator")
    assert wait["command"] == f"forestay runs retry {run[:8]} first"
    await obeyed(site, run, "redo", "first")
    assert (await site.ended(run)).state == "completed"
    assert (await person.get(f"/v1/runs/{run}")).json()["waits"] == []
    await until(lambda: _without(run, held), "the run to be listed no longer")


@pytest.mark.ledger("P1-36")
async def test_a_task_that_was_done_is_done_again_with_what_came_after_it(site: RunSite) -> None:
    site.hold_back = named("second")
    run = await site.start(CHAIN)
    await under_way(site, "second")
    site.hold_back = lambda _claim: False
    await obeyed(site, run, "redo", "first")
    assert (await site.ended(run)).state == "completed"
    assert site.ran == ["first", "first", "second"]
    assert sorted(await jobs(site, run)) == [
        ("first", "completed"),
        ("first", "completed"),
        ("second", "cancelled"),
        ("second", "completed"),
    ]


@pytest.mark.ledger("P1-36")
async def test_a_task_is_skipped(site: RunSite) -> None:
    site.hold_back = named("first")
    run = await site.start(CHAIN)
    await under_way(site, "first")
    await obeyed(site, run, "skip", "first")
    assert (await site.ended(run)).state == "completed"
    assert await site.tasks(run) == {"first": "skipped", "second": "completed"}
    assert await jobs(site, run) == [("first", "cancelled"), ("second", "completed")]


@pytest.mark.ledger("P1-36")
async def test_a_task_is_replaced_by_another_job(site: RunSite) -> None:
    commands: list[list[str]] = []

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        commands.append(claim["specification"]["command"])
        return BAD if claim["specification"]["command"] == ["echo", "one"] else GOOD

    site.fate = fate
    run = await site.start(HELD)
    await site.task_is(run, "first", "faulted")
    wrong = await say(site, run, "replace", "first", changes={"tenant": "another"})
    assert "cannot be changed" in problem(wrong, 409)["detail"]
    await obeyed(site, run, "replace", "first", changes={"command": ["echo", "anew"]})
    assert (await site.ended(run)).state == "completed"
    assert commands == [["echo", "one"], ["echo", "anew"], ["echo", "two"]]


@pytest.mark.ledger("P1-36")
async def test_a_task_is_replaced_by_another_flow(site: RunSite) -> None:
    person = site.server.person("submitter", tenant=TENANT)
    version = (await person.post("/v1/flows", json={"text": OTHER})).json()["version"]
    site.fate = lambda claim: BAD if claim["name"] == "first" else GOOD
    run = await site.start(HELD)
    await site.task_is(run, "first", "faulted")
    await obeyed(site, run, "replace", "first", changes={"flow": version})
    assert (await site.ended(run)).state == "completed"
    assert site.ran == ["first", "detour", "second"]
    assert (await site.engine.describe(run_of(run, "first@2", 0))).version == version


@pytest.mark.ledger("P1-36")
async def test_a_loop_is_looped_once_more(site: RunSite) -> None:
    site.hold_back = named("last")
    run = await site.start(LOOP)
    await under_way(site, "last")
    assert site.ran == ["fit", "fit"]
    site.hold_back = lambda _claim: False
    await obeyed(site, run, "redo", "refine")
    assert (await site.ended(run)).state == "completed"
    assert site.ran == ["fit"] * 4 + ["last"]


async def test_a_task_inside_a_loop_is_steered(site: RunSite) -> None:
    site.hold_back = named("fit")
    run = await site.start(LOOP)
    await under_way(site, "fit")
    inner = next(task for task in await site.tasks(run) if task.endswith("fit"))
    await obeyed(site, run, "skip", inner)
    site.hold_back = lambda _claim: False
    assert (await site.ended(run)).state == "completed"
    assert site.ran == ["fit", "last"]


async def test_of_a_scatter_only_what_failed_is_done_again(site: RunSite) -> None:
    site.fate = lambda claim: BAD if claim.get("index") == 3 and site.ran.count("many[3]") == 1 else GOOD
    text = SCATTER.replace('[0, "${params.n}"]}}', '[0, "${params.n}"]}}, when_failed: hold')
    run = await site.start(text, n=6)
    await site.task_is(run, "many", "faulted")
    await obeyed(site, run, "redo", "many", only_failed=True)
    assert (await site.ended(run)).state == "completed"
    assert sorted(site.ran) == sorted([*(f"many[{n}]" for n in range(6)), "many[3]", "last"])


@pytest.mark.ledger("P0-19")
async def test_a_task_is_forced_to_complete(site: RunSite) -> None:
    site.hold_back = named("first")
    run = await site.start(CHAIN)
    await under_way(site, "first")
    await obeyed(site, run, "force-complete", "first", reason="seen on the disk")
    assert (await site.ended(run)).state == "completed"
    assert await site.tasks(run) == {"first": "forced_complete", "second": "completed"}
    late = await site.kept[0][0].end(site.kept[0][1])
    assert late == ["superseded"], "what ends after it was forced does not count"


@pytest.mark.ledger("P0-19")
async def test_a_task_is_forced_to_fail(site: RunSite) -> None:
    site.hold_back = named("first")
    run = await site.start(CHAIN)
    await under_way(site, "first")
    await obeyed(site, run, "force-fail", "first", reason="it will never end")
    assert (await site.ended(run)).state == "completed", "the tasks after it go on"
    assert await site.tasks(run) == {"first": "failed", "second": "completed"}


async def test_a_task_is_removed_with_what_comes_after_it(site: RunSite) -> None:
    site.hold_back = named("first")
    run = await site.start(CHAIN)
    await under_way(site, "first")
    await obeyed(site, run, "remove", "first")
    await site.ended(run)
    assert await site.tasks(run) == {"first": "cancelled", "second": "cancelled"}
    assert await jobs(site, run) == [("first", "cancelled")]


async def test_a_suspended_task_holds_its_jobs_and_nothing_else(site: RunSite) -> None:
    text = "{forestay: 1, name: side, tasks: {one: {command: [a]}, two: {command: [b], after: [one]}, free: {command: [c]}}}"
    site.hold_back = named("one")
    run = await site.start(text)
    await under_way(site, "one")
    await obeyed(site, run, "suspend", "two", holder="incident-1:step-2")
    await site.let_go()
    site.hold_back = lambda _claim: False
    await site.task_is(run, "one", "completed")
    await site.task_is(run, "free", "completed")
    foreign = await say(site, run, "continue", "two")
    assert "did not suspend" in problem(foreign, 409)["detail"]
    assert (await site.tasks(run))["two"] == "waiting"
    await obeyed(site, run, "continue", "two", holder="incident-1:step-2")
    assert (await site.ended(run)).state == "completed"
    assert site.ran[-1] == "two"


async def test_an_exception_is_raised(site: RunSite) -> None:
    site.hold_back = named("first")
    run = await site.start(CHAIN)
    await under_way(site, "first")
    await obeyed(site, run, "raise", "first", id="r-1", reason="too cold", changes={"type": "task-external"})
    await obeyed(site, run, "raise", id="r-2", reason="no more money", changes={"type": "run-external"})
    store = site.server.services.components.store

    async def told() -> Any:
        records = [await store.get_record(f"run:{run}:verb:{name}") for name in ("r-1", "r-2")]
        return [record.body for record in records if record is not None] if all(records) else None

    assert await until(told, "the exceptions to be recorded") == [
        {"kind": "task-external", "task": "first", "detail": "too cold"},
        {"kind": "run-external", "task": "", "detail": "no more money"},
    ]
    await site.let_go()
    assert (await site.ended(run)).state == "completed"


# Runs


async def test_a_run_is_restarted(site: RunSite) -> None:
    site.hold_back = named("second")
    run = await site.start(CHAIN)
    await under_way(site, "second")
    site.hold_back = lambda _claim: False
    await obeyed(site, run, "restart")
    assert (await site.ended(run)).state == "completed"
    assert site.ran == ["first", "first", "second"]


@pytest.mark.ledger("P0-19")
async def test_a_run_is_forced_to_complete(site: RunSite) -> None:
    site.hold_back = named("second")
    run = await site.start(CHAIN)
    await under_way(site, "second")
    await obeyed(site, run, "force-complete", reason="good enough")
    assert (await site.ended(run)).state == "forced_complete"
    assert await jobs(site, run) == [("first", "completed"), ("second", "cancelled")]


@pytest.mark.ledger("P0-19")
async def test_a_run_is_forced_to_fail_and_is_compensated(site: RunSite) -> None:
    undone: list[str] = []

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        command = claim["specification"]["command"]
        if command[0] == "undo":
            undone.append(command[1])
        return GOOD

    site.fate = fate
    site.hold_back = lambda claim: claim["name"] == "d"
    run = await site.start(COMPENSATED)
    await under_way(site, "d")
    await obeyed(site, run, "force-fail", reason="the grant was withdrawn")
    assert (await site.ended(run)).state == "failed"
    assert undone == ["c", "b", "a"]


async def test_a_held_compensation_is_done_again_or_settled(site: RunSite) -> None:
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
            stack = (await site.engine.state(run))["stack"]
            return bool(stack) and stack[-1]["number"] == number and bool(stack[-1].get("held"))

        await until(there, f"compensation {number} to be held")

    site.fate = fate
    run = await site.start(COMPENSATED.replace("compensate: {", "compensate: {tries: 1, "))
    await held(2)
    assert "is not the compensation" in problem(await say(site, run, "redo", "!1"), 409)["detail"]
    broken.discard("b")
    await obeyed(site, run, "redo", "!2")
    await held(1)
    await obeyed(site, run, "skip", "!1", reason="undone by hand")
    assert (await site.ended(run)).state == "failed"
    assert undone == ["c", "b", "b", "a"]
    (settled,) = (await site.engine.state(run))["settled"]
    assert settled == [1, "a", "skip", "olga", "undone by hand"]


# Those that started a run


async def test_ancestors_are_suspended_and_continued(site: RunSite) -> None:
    site.hold_back = named("work")
    top = await site.start(DEEP)
    await under_way(site, "work")
    middle = run_of(top, "outer@1", 0)
    inner = run_of(middle, "inner@1", 0)
    await obeyed(site, inner, "suspend", ancestors=True, holder="incident-7:1")
    for run in (inner, middle, top):
        await until(_holds(site, run, "incident-7:1"), f"{run} to be held")
    site.hold_back = lambda _claim: False
    await site.let_go()
    await obeyed(site, inner, "continue", ancestors=True, holder="incident-7:1")
    assert (await site.ended(top)).state == "completed"
    assert site.ran == ["more", "last"]
    for run in (inner, middle):
        assert (await site.engine.describe(run)).state == "completed"


async def test_ancestors_are_removed(site: RunSite) -> None:
    site.hold_back = named("work")
    top = await site.start(DEEP)
    await under_way(site, "work")
    inner = run_of(run_of(top, "outer@1", 0), "inner@1", 0)
    await obeyed(site, inner, "remove", ancestors=True)
    assert (await site.ended(top)).state == "removed"
    assert (await site.ended(inner)).state == "removed"
    assert await jobs(site, inner) == [("work", "cancelled")]
    assert site.ran == []


async def test_a_sub_run_that_is_forced_to_fail_fails_its_task(site: RunSite) -> None:
    site.hold_back = named("work")
    top = await site.start(DEEP)
    await under_way(site, "work")
    await obeyed(site, run_of(run_of(top, "outer@1", 0), "inner@1", 0), "force-fail")
    assert (await site.ended(top)).state == "failed"
    assert (await site.tasks(top))["outer"] == "failed"


# Time


@pytest.mark.parametrize(
    ("deadline", "ends"),
    [("1 s", {"slow": "failed", "last": "completed"}), ("{seconds: 1 s, then: report}", {"slow": "running"})],
    ids=["fails", "is reported"],
)
async def test_a_task_is_late(site: RunSite, deadline: str, ends: dict[str, str]) -> None:
    site.hold_back = named("slow")
    run = await site.start(LATE.replace("DEADLINE", deadline))
    await until(_recorded(site, run, "task-late"), "the task to be reported as late")
    for task, state in ends.items():
        await site.task_is(run, task, state)
    site.hold_back = lambda _claim: False
    if ends["slow"] == "running":
        await site.let_go()
    assert (await site.ended(run)).state == "completed"


async def test_a_run_is_late_and_is_compensated(site: RunSite) -> None:
    site.hold_back = named("slow")
    run = await site.start(LATE_RUN)
    assert (await site.ended(run)).state == "failed"
    assert await _recorded(site, run, "run-late")()
    assert site.ran.count("before") >= 1
    assert ("slow", "cancelled") in await jobs(site, run)
    assert (await site.engine.state(run))["reason"] == "it did not finish within 1 s"


# What may follow what


@pytest.mark.ledger("P0-20")
@pytest.mark.parametrize("wait", ["true", "false"], ids=["waited for", "fire and forget"])
async def test_a_job_takes_only_the_steps_that_its_state_allows(site: RunSite, wait: str) -> None:
    """Submitted, running, failed, submitted again, running, completed; at each place what may not follow is refused."""
    operator = site.server.person("operator", tenant=TENANT)
    site.hold_back = named("first")
    run = await site.start(FORGOTTEN.replace("WAIT", wait))

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
    assert (await site.ended(run)).state == "completed"


@pytest.mark.ledger("P0-20")
async def test_a_run_takes_only_the_steps_that_its_state_allows(site: RunSite) -> None:
    site.hold_back = named("second")
    run = await site.start(CHAIN)
    await under_way(site, "second")
    before = await site.tasks(run)
    for verb, task, why in (
        ("skip", "first", "already ended"),
        ("force-complete", "first", "already ended"),
        ("force-fail", "first", "already ended"),
        ("remove", "first", "already ended"),
        ("suspend", "first", "already ended"),
        ("continue", "second", "did not suspend"),
        ("continue", "", "did not suspend"),
        ("skip", "", "applies to tasks only"),
        ("replace", "", "applies to tasks only"),
        ("redo", "third", "has no task"),
    ):
        detail = problem(await say(site, run, verb, task), 409)["detail"]
        assert why in detail, (verb, task, detail)
    assert "round 1" in problem(await say(site, run, "redo", "second", round=7), 409)["detail"]
    assert await site.tasks(run) == before
    await site.let_go()
    assert (await site.ended(run)).state == "completed"
    for verb in ("redo", "restart", "suspend", "continue", "force-complete", "force-fail", "remove", "raise"):
        problem(await say(site, run, verb), 409)
    assert (await site.engine.describe(run)).state == "completed"


@pytest.mark.ledger("P0-20")
async def test_a_failed_run_is_only_compensated(site: RunSite) -> None:
    site.fate = lambda claim: BAD if claim["name"] == "d" else GOOD
    site.hold_back = lambda claim: claim["specification"]["command"][0] == "undo"
    run = await site.start(COMPENSATED)

    async def undoing() -> bool:
        return bool(site.kept)

    await until(undoing, "a compensation to run")
    for verb, task in (("redo", "d"), ("skip", "d"), ("redo", ""), ("force-complete", ""), ("force-fail", "")):
        problem(await say(site, run, verb, task), 409)
    site.hold_back = lambda _claim: False
    await site.let_go()
    assert (await site.ended(run)).state == "failed"


def _holds(site: RunSite, run: str, holder: str) -> Any:
    async def there() -> bool:
        return holder in (await site.engine.state(run))["holders"]

    return there


def _recorded(site: RunSite, run: str, kind: str) -> Any:
    store = site.server.services.components.store

    async def there() -> bool:
        records = await store.find_records(kind="run-event", job=run, tenant=TENANT)
        return kind in [record.body["kind"] for record in records]

    return there
