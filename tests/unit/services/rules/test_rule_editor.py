"""Adding rules for their reference incidents, on a real SQLite store and with real conditions; copies of the rules follow within a second."""

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
from forestay.services.rules.rule_editor import Edited, NotEdited, RuleDraft, RuleEditor
from forestay.services.rules.rule_store import RuleCache, RuleStore, Rulings

DEFAULT_POLICY = RuleSetId("lab", RuleSetLevel.DOMAIN, "site")
HOLD = Conclusion(steps=({"action": "hold"},))
RETRY = Conclusion(steps=({"action": "retry"},))


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
        self, condition: str, context: dict[str, object], conclusion: Conclusion = HOLD, *, confirmed: bool = False
    ) -> Edited | NotEdited:
        place = next(_numbers)
        draft = RuleDraft(DEFAULT_POLICY, ExceptionType.ABORT, "", condition, conclusion, f"i{place}", context, "why")
        return await self.edit.add(draft, by="ann", confirmed=confirmed)

    async def added(self, condition: str, fields: dict[str, object], conclusion: Conclusion = HOLD) -> str:
        done = await self.add(condition, fields, conclusion)
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
async def test_a_rule_is_added_for_its_reference_incident_and_one_that_overturns_an_earlier_one_is_shown_and_refused(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as other_desk:
        general = await other_desk.added('cause == "memory"', MEMORY)
        refused = await other_desk.add("job.attempt >= 1", {"cause": "memory", "job.attempt": 3}, RETRY)
        assert isinstance(refused, NotEdited)
        (shown,) = refused.overturned
        assert (shown.rule, shown.before, shown.after[:5]) == (general, f"rule {general}", "rule ")
        assert await other_desk.edit.rules.newest(DEFAULT_POLICY) == 1
        # One that is true of the new run alone changes no earlier answer, and is taken.
        refined = await other_desk.added("job.attempt >= 3", {"cause": "memory", "job.attempt": 3}, RETRY)
        confirmed = await other_desk.add(
            'job.owner == ""', {"cause": "memory", "job.attempt": 2}, RETRY, confirmed=True
        )
        assert isinstance(confirmed, Edited)
        assert [overturned.rule for overturned in confirmed.overturned] == [general]
        tree = next(iter((await other_desk.edit.rules.load(DEFAULT_POLICY)).trees.values()))
        assert tree.rules[refined].parent == general
        assert tree.rules[refined].reference_incident
        assert tree.rules[refined].author == "ann"


async def test_what_is_wrong_with_a_rule_is_told_all_at_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as other_desk:
        refused = await other_desk.add(
            "cuase == 'x' && foo", {"hots": 1}, Conclusion(steps=({"action": "restart", "target": "run"},))
        )
        assert isinstance(refused, NotEdited)
        assert [f"{problem.line}:{problem.column}" for problem in refused.problems] == ["1:1", "1:17"]
        assert len(refused.reasons) >= 2
        for condition, word in (('cause == "disk"', "not true"), ("run.data.nothing == 1", "has an error")):
            refused = await other_desk.add(condition, MEMORY)
            assert isinstance(refused, NotEdited)
            assert word in refused.reasons[0]
        assert await other_desk.edit.rules.newest(DEFAULT_POLICY) == 0


@pytest.mark.ledger("P1-25")
async def test_a_rule_that_is_added_reaches_every_copy_within_a_second_and_acts_when_promoted(tmp_path: Path) -> None:
    context, _ = read_context(MEMORY)
    async with desk(tmp_path) as other_desk:
        await other_desk.cache.refresh()
        running = asyncio.create_task(other_desk.cache.run())
        try:

            def ask() -> Rulings:
                return other_desk.cache.decide("lab", "reads", ExceptionType.ABORT, "align", context)

            assert (ask().active.verdict, ask().shadow) == (ConditionVerdict.FALSE, None)
            rule = await other_desk.added('cause == "memory"', MEMORY)
            await looked_once_more(other_desk.cache)
            shadow = ask().shadow
            assert shadow is not None
            assert (ask().active.conclusion, shadow.conclusion) == (None, HOLD)

            assert isinstance(await other_desk.edit.promote(DEFAULT_POLICY, rule, by="bob"), Edited)
            await looked_once_more(other_desk.cache)
            assert ask().shadow is None
            assert other_desk.cache.every <= 0.5
            assert (
                other_desk.cache.decide("other", "reads", ExceptionType.ABORT, "align", context).active.conclusion
                is None
            )
        finally:
            running.cancel()


async def test_a_refinement_of_a_shadow_is_promoted_after_it(tmp_path: Path) -> None:
    async with desk(tmp_path) as other_desk:
        general = await other_desk.added('cause == "memory"', MEMORY)
        refined = await other_desk.added("job.attempt > 1", {**MEMORY, "job.attempt": 2}, RETRY)
        refused = await other_desk.edit.promote(DEFAULT_POLICY, refined, by="bob")
        assert isinstance(refused, NotEdited)
        assert general in refused.reasons[0]
        for rule in (general, refined):
            assert isinstance(await other_desk.edit.promote(DEFAULT_POLICY, rule, by="bob"), Edited)
        assert isinstance(await other_desk.edit.promote(DEFAULT_POLICY, general, by="bob", to=RuleState.SHADOW), Edited)


async def test_versions_differ_and_can_be_come_back_to(tmp_path: Path) -> None:
    async with desk(tmp_path) as other_desk:
        first = await other_desk.added('cause == "memory"', MEMORY)
        second = await other_desk.added('cause == "disk"', {"cause": "disk"})
        await other_desk.edit.promote(DEFAULT_POLICY, second, by="bob")
        assert {change.rule for change in await other_desk.edit.diff(DEFAULT_POLICY, 1)} == {first, second}
        back = await other_desk.edit.roll_back(DEFAULT_POLICY, 1, by="bob")
        assert isinstance(back, Edited)
        now = await other_desk.edit.rules.load(DEFAULT_POLICY)
        assert (now.version, len(now)) == (4, 1)
        assert await other_desk.edit.diff(DEFAULT_POLICY, 1, 4) == ()
        gone = await other_desk.edit.remove(DEFAULT_POLICY, first, by="bob", confirmed=True)
        assert isinstance(gone, Edited)
        assert len(await other_desk.edit.rules.load(DEFAULT_POLICY)) == 0
        await other_desk.cache.refresh()
        assert other_desk.cache.sets_for("lab", "reads")[0].version == 5


async def test_two_who_add_at_once_both_get_their_rule(tmp_path: Path) -> None:
    async with desk(tmp_path) as other_desk:
        causes = ("memory", "disk", "time", "node")
        done = await asyncio.gather(*(other_desk.add(f'cause == "{cause}"', {"cause": cause}) for cause in causes))
        assert all(isinstance(each, Edited) for each in done)
        kept = await other_desk.edit.rules.load(DEFAULT_POLICY)
        assert (kept.version, len(kept)) == (4, 4)
