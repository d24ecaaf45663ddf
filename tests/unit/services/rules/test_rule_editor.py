"""Adding rules for their cornerstones, on a real SQLite store and with real conditions; copies of the rules follow within a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.cel.sandbox import CelSandbox
from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.condition import ConditionVerdict
from forestay.domain.rules.context import read_context
from forestay.domain.rules.rule_set import RuleSetId, RuleSetLevel
from forestay.domain.rules.rule_tree import Conclusion, RuleState
from forestay.services.rules.rule_cache import RuleCache, Rulings
from forestay.services.rules.rule_editor import Edited, NotEdited, RuleDraft, RuleEditor
from forestay.services.rules.rule_store import RuleStore

HOUSE = RuleSetId("lab", RuleSetLevel.DOMAIN, "house")
HOLD = Conclusion(steps=({"action": "hold"},))
LADDER = Conclusion(steps=({"action": "ladder"},))


class Clock:
    def now(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass
class Desk:
    edit: RuleEditor
    cache: RuleCache

    async def add(
        self, condition: str, told: dict[str, object], conclusion: Conclusion = HOLD, *, confirmed: bool = False
    ) -> Edited | NotEdited:
        place = next(_numbers)
        draft = RuleDraft(HOUSE, ExceptionType.ABORT, "", condition, conclusion, f"i{place}", told, "why")
        return await self.edit.add(draft, by="ann", confirmed=confirmed)

    async def added(self, condition: str, told: dict[str, object], conclusion: Conclusion = HOLD) -> str:
        done = await self.add(condition, told, conclusion)
        assert isinstance(done, Edited), done
        return done.rule


_numbers = count(1)


@asynccontextmanager
async def desk(folder: Path) -> AsyncIterator[Desk]:
    jobs = SqlJobStore(f"sqlite:///{folder}/jobs.db")
    await jobs.open()
    sandbox, conditions, numbers = CelSandbox(), CelConditions(), count(1)
    try:
        # The copy reads by a service of its own, as another process would.
        yield Desk(
            RuleEditor(
                RuleStore(SqlDocumentStore(jobs.database)), conditions, sandbox, Clock(), lambda: f"r{next(numbers)}"
            ),
            RuleCache(RuleStore(SqlDocumentStore(jobs.database)), CelConditions()),
        )
    finally:
        await sandbox.close()
        await jobs.close()


async def looked_once_more(cache: RuleCache) -> None:
    """The look that is going on may have begun before; the next one sees everything."""
    since = cache.looks
    async with asyncio.timeout(30):
        for _ in iter(lambda: cache.looks >= since + 2, True):
            await asyncio.sleep(0.01)


MEMORY: dict[str, object] = {"cause": "memory", "job.attempt": 1}


@pytest.mark.ledger("P1-33")
async def test_a_rule_is_added_for_its_cornerstone_and_one_that_overturns_an_earlier_one_is_shown_and_refused(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as one:
        general = await one.added('cause == "memory"', MEMORY)
        refused = await one.add("job.attempt >= 1", {"cause": "memory", "job.attempt": 3}, LADDER)
        assert isinstance(refused, NotEdited)
        (shown,) = refused.overturned
        assert (shown.rule, shown.before, shown.after[:5]) == (general, f"rule {general}", "rule ")
        assert await one.edit.rules.newest(HOUSE) == 1
        # One that is true of the new case alone changes no earlier answer, and is taken.
        refined = await one.added("job.attempt >= 3", {"cause": "memory", "job.attempt": 3}, LADDER)
        confirmed = await one.add('job.owner == ""', {"cause": "memory", "job.attempt": 2}, LADDER, confirmed=True)
        assert isinstance(confirmed, Edited)
        assert [overturned.rule for overturned in confirmed.overturned] == [general]
        tree = next(iter((await one.edit.rules.load(HOUSE)).trees.values()))
        assert tree.rules[refined].parent == general
        assert tree.rules[refined].cornerstone
        assert tree.rules[refined].author == "ann"


async def test_what_is_wrong_with_a_rule_is_told_all_at_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as one:
        refused = await one.add(
            "cuase == 'x' && foo", {"hots": 1}, Conclusion(steps=({"action": "restart", "target": "case"},))
        )
        assert isinstance(refused, NotEdited)
        assert [f"{problem.line}:{problem.column}" for problem in refused.problems] == ["1:1", "1:17"]
        assert len(refused.reasons) >= 2
        for condition, word in (('cause == "disk"', "not true"), ("case.data.nothing == 1", "has an error")):
            refused = await one.add(condition, MEMORY)
            assert isinstance(refused, NotEdited)
            assert word in refused.reasons[0]
        assert await one.edit.rules.newest(HOUSE) == 0


@pytest.mark.ledger("P1-25")
async def test_a_rule_that_is_added_reaches_every_copy_within_a_second_and_acts_when_promoted(tmp_path: Path) -> None:
    context, _ = read_context(MEMORY)
    async with desk(tmp_path) as one:
        await one.cache.refresh()
        running = asyncio.create_task(one.cache.run())
        try:

            def ask() -> Rulings:
                return one.cache.decide("lab", "reads", ExceptionType.ABORT, "align", context)

            assert (ask().active.verdict, ask().shadow) == (ConditionVerdict.FALSE, None)
            rule = await one.added('cause == "memory"', MEMORY)
            await looked_once_more(one.cache)
            shadow = ask().shadow
            assert shadow is not None
            assert (ask().active.conclusion, shadow.conclusion) == (None, HOLD)

            assert isinstance(await one.edit.promote(HOUSE, rule, by="bob"), Edited)
            await looked_once_more(one.cache)
            assert ask().shadow is None
            assert one.cache.every <= 0.5
            assert one.cache.decide("other", "reads", ExceptionType.ABORT, "align", context).active.conclusion is None
        finally:
            running.cancel()


async def test_a_refinement_of_a_shadow_is_promoted_after_it(tmp_path: Path) -> None:
    async with desk(tmp_path) as one:
        general = await one.added('cause == "memory"', MEMORY)
        refined = await one.added("job.attempt > 1", {**MEMORY, "job.attempt": 2}, LADDER)
        refused = await one.edit.promote(HOUSE, refined, by="bob")
        assert isinstance(refused, NotEdited)
        assert general in refused.reasons[0]
        for rule in (general, refined):
            assert isinstance(await one.edit.promote(HOUSE, rule, by="bob"), Edited)
        assert isinstance(await one.edit.promote(HOUSE, general, by="bob", to=RuleState.SHADOW), Edited)


async def test_versions_differ_and_can_be_come_back_to(tmp_path: Path) -> None:
    async with desk(tmp_path) as one:
        first = await one.added('cause == "memory"', MEMORY)
        second = await one.added('cause == "disk"', {"cause": "disk"})
        await one.edit.promote(HOUSE, second, by="bob")
        assert {change.rule for change in await one.edit.diff(HOUSE, 1)} == {first, second}
        back = await one.edit.roll_back(HOUSE, 1, by="bob")
        assert isinstance(back, Edited)
        now = await one.edit.rules.load(HOUSE)
        assert (now.version, len(now)) == (4, 1)
        assert await one.edit.diff(HOUSE, 1, 4) == ()
        gone = await one.edit.remove(HOUSE, first, by="bob", confirmed=True)
        assert isinstance(gone, Edited)
        assert len(await one.edit.rules.load(HOUSE)) == 0
        await one.cache.refresh()
        assert one.cache.sets_for("lab", "reads")[0].version == 5


async def test_two_who_add_at_once_both_get_their_rule(tmp_path: Path) -> None:
    async with desk(tmp_path) as one:
        causes = ("memory", "disk", "time", "node")
        done = await asyncio.gather(*(one.add(f'cause == "{cause}"', {"cause": cause}) for cause in causes))
        assert all(isinstance(each, Edited) for each in done)
        kept = await one.edit.rules.load(HOUSE)
        assert (kept.version, len(kept)) == (4, 4)
