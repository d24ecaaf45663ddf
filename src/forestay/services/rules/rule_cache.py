"""A copy of all rules, at most half a second old, and the decisions made with it.

Whoever evaluates rules has one. It reads one small document a few times a second; a version that it does not have is read as what it
changed, its conditions are compiled, and then the set is put in the place of the old one: nobody who walks waits for anything.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.condition import Evaluate
from forestay.domain.rules.context import Context
from forestay.domain.rules.rule_set import (
    RuleChange,
    RuleSet,
    RuleSetId,
    RuleSetLevel,
    Ruling,
    TreeKey,
    apply,
    asked_at,
    decide,
    in_order,
    keys_for,
)
from forestay.domain.rules.rule_set_index import RuleSetIndex, decide_quickly
from forestay.domain.rules.rule_tree import RuleChangeRefused, RuleState, RuleTree
from forestay.domain.rules.tree_index import IndexedSet, TreeIndex
from forestay.ports.errors import Permanent, PortError, Transient
from forestay.ports.jobs.job_store import Version as DocumentVersion
from forestay.ports.rules.conditions import Conditions
from forestay.services.rules.rule_store import RuleStore, heads_in

DOMAIN = "site"
"""The name of a domain's own rule set."""
THOROUGH = 75
"""Every so many looks all heads are searched for: one whose writer died before it set the mark is found so."""
COMPILED_AT_ONCE = 4
"""Conditions that are compiled between two turns of the loop, which takes about a millisecond."""
FEW = 100
"""Up to so many versions are taken over one by one."""
MANY = 1_000
_EMPTY = RuleTree()


class Rulings(NamedTuple):
    """The decisions of the active rules, which may act; and those with shadow rules included, where these differ."""

    active: Ruling
    shadow: Ruling | None


@dataclass(slots=True)
class RuleCache:
    """The service. `run` keeps it fresh."""

    rules: RuleStore
    conditions: Conditions
    every: float = 0.4
    monotonic: Callable[[], float] = time.monotonic
    looks: int = 0
    taken_over: int = 0
    """Counts the versions that the copy has taken over: whoever waits for new rules looks at it."""
    _sets: dict[RuleSetId, IndexedSet] = field(default_factory=dict)
    _set_indexes: dict[tuple[str, str | None], RuleSetIndex] = field(default_factory=dict)
    """By tenant and flow, the flow's own set; by tenant and no flow, the domain's set and the packs, which every flow asks."""
    _unreadable: dict[RuleSetId, str] = field(default_factory=dict)
    """Sets whose newest version cannot be read, and why."""
    _mark: DocumentVersion | None = None
    _fresh: float | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def age(self) -> float:
        """Seconds since the store last said that this is all; infinite before it did."""
        return float("inf") if self._fresh is None else self.monotonic() - self._fresh

    async def run(self) -> None:
        """Keep the copy fresh. While the store does not answer, the rules stay as they were known."""
        while True:
            with suppress(PortError):
                await self.refresh()
            await asyncio.sleep(self.every)

    async def refresh(self) -> None:
        """Take over what has changed since the last time."""
        async with self._reading:
            began = self.monotonic()
            mark = await self.rules.mark()
            version = mark.version if mark is not None else None
            thorough = self._fresh is None or self.looks % THOROUGH == 0
            self.looks += 1
            if version != self._mark or thorough:
                heads = dict(heads_in(mark))
                if thorough:
                    for rule_set, number in (await self.rules.heads()).items():
                        heads[rule_set] = max(number, heads.get(rule_set, 0))
                for rule_set, number in heads.items():
                    known = self._sets.get(rule_set)
                    if known is None or known.rule_set.version < number or rule_set in self._unreadable:
                        await self._take_over_or_note(rule_set, number)
                self._mark = version
            self._fresh = began

    async def _take_over_or_note(self, name: RuleSetId, number: int) -> None:
        """A set that cannot be read concerns those alone who are decided for by it: the others get their rules all the same."""
        try:
            await self._take_over(name, number)
            self._unreadable.pop(name, None)
        except Transient:
            raise
        except Exception as error:
            self._unreadable[name] = f"{type(error).__name__}: {error}"

    async def _take_over(self, name: RuleSetId, number: int) -> None:
        known = self._sets.get(name)
        set_index = self._set_indexes.setdefault(_seat_of(name), RuleSetIndex())
        if known is None or number - known.rule_set.version > FEW:
            later = await self.rules.load(name, number)
            ready = await self.indexed(later)
            for key, index in ready.indexes.items():
                await _beside(set_index.learn(name, key, index))
            if len(later) >= MANY:
                # They stay: looking through them for garbage again and again would hold everyone up for a tenth of a second.
                gc.freeze()
        else:
            ready, later = known, known.rule_set
            for version in await self.rules.versions(name, later.version + 1, number):
                next_ = apply(later, version)
                if isinstance(next_, RuleChangeRefused):
                    raise Permanent(f"{name}: {next_.reason}")
                later = next_
                ready = await self._followed(ready, later, version.changes, set_index)
        self._sets[name] = ready
        self.taken_over += 1
        if name.level is not RuleSetLevel.DOMAIN or name.name == DOMAIN:
            seated = [*(indexed_set for indexed_set in set_index.sets if indexed_set.rule_set.id != name), ready]
            set_index.seat(sorted(seated, key=lambda indexed_set: asked_at(indexed_set.rule_set.id)))

    async def indexed(self, rule_set: RuleSet) -> IndexedSet:
        """Any set made ready to be walked, bit by bit; it is not kept here."""
        ready = IndexedSet(RuleSet(rule_set.id), self._compiles)
        for key, tree in rule_set.trees.items():
            ready.indexes[key] = await self._built(tree)
        ready.rule_set = rule_set
        ready.shadowed = any(tree.shadowed for tree in rule_set.trees.values())
        return ready

    async def _built(self, tree: RuleTree) -> TreeIndex:
        for place, rule in enumerate(tree.rules.values()):
            self._compiles(rule.condition)
            if place % COMPILED_AT_ONCE == COMPILED_AT_ONCE - 1:
                await asyncio.sleep(0)
        index = TreeIndex(_EMPTY, self._compiles)
        await _beside(index.build(tree))
        return index

    async def _followed(
        self, known: IndexedSet, later: RuleSet, changes: Sequence[RuleChange], set_index: RuleSetIndex
    ) -> IndexedSet:
        for change in changes:
            if change.after is not None:
                self._compiles(change.after.condition)
        by_key: dict[TreeKey, list[RuleChange]] = {}
        for change in changes:
            by_key.setdefault(change.key, []).append(change)
        built = {
            key: await self._built(later.trees[key])
            for key, mine in by_key.items()
            if key in later.trees and (key not in known.indexes or not TreeIndex.can_follow(mine))
        }
        for key, index in built.items():
            await _beside(set_index.learn(later.id, key, index))
        # From here on nothing is waited for: nobody decides by one tree of before and another of after.
        for key, mine in by_key.items():
            if key not in later.trees:
                known.indexes.pop(key, None)
            elif key in built:
                known.indexes[key] = built[key]
            else:
                known.indexes[key].follow(later.trees[key], mine)
                for _ in set_index.learn(later.id, key, known.indexes[key]):
                    pass
        known.rule_set = later
        if any(change.after is not None and change.after.state is RuleState.SHADOW for change in changes):
            known.shadowed = True
        elif known.shadowed:
            known.shadowed = any(tree.shadowed for tree in later.trees.values())
        set_index.seat(set_index.sets)
        return known

    def _compiles(self, text: str) -> bool:
        return not self.conditions.compile(text)

    def known(self, rule_set: RuleSetId) -> RuleSet:
        """A set as the copy has it; the empty one where it has none."""
        known = self._sets.get(rule_set)
        return known.rule_set if known is not None else RuleSet(rule_set)

    def sets_of(self, tenant: str) -> Sequence[RuleSet]:
        """Every set of a tenant."""
        return in_order(
            indexed_set.rule_set for indexed_set in self._sets.values() if indexed_set.rule_set.id.tenant == tenant
        )

    def sets_for(self, tenant: str, flow: str) -> tuple[RuleSet, ...]:
        """The sets that are asked about an exception of a flow: the flow's, the domain's, the packs'. `flow` is its name."""
        return tuple(indexed_set.rule_set for indexed_set in self._asked(tenant, flow))

    def _asked(self, tenant: str, flow: str) -> tuple[IndexedSet, ...]:
        return tuple(indexed_set for set_index in self._panels_for(tenant, flow) for indexed_set in set_index.sets)

    def _panels_for(self, tenant: str, flow: str) -> list[RuleSetIndex]:
        indexes = (self._set_indexes.get((tenant, flow)), self._set_indexes.get((tenant, None)))
        return [index for index in indexes if index is not None]

    def has_tree(self, tenant: str, flow: str, type_: ExceptionType, task: str, *, own: bool = False) -> bool:
        """Whether an exception would be asked of any tree at all; with ``own``, of one that is for this very task."""
        keys = (TreeKey(type_, task),) if own else keys_for(type_, task)
        return any(key in indexed_set.indexes for indexed_set in self._asked(tenant, flow) for key in keys)

    def decide(self, tenant: str, flow: str, type_: ExceptionType, task: str, context: Context) -> Rulings:
        """What the rules say to an exception. `Transient` while nothing is known yet, `Permanent` if a set that is asked cannot be read: nobody decides by half of the rules."""
        if self._fresh is None:
            raise Transient("the rules are not loaded yet")
        for name, why in self._unreadable.items():
            if _seat_of(name) in ((tenant, flow), (tenant, None)):
                raise Permanent(f"the rules of {name} cannot be read: {why}")
        evaluate = self.conditions.over(context)
        set_indexes = self._panels_for(tenant, flow)
        active = decide_quickly(set_indexes, type_, task, context, evaluate)
        if not any(set_index.shadowed for set_index in set_indexes):
            return Rulings(active, None)
        return Rulings(
            active, _differing(active, decide_quickly(set_indexes, type_, task, context, evaluate, shadow=True))
        )


def _seat_of(name: RuleSetId) -> tuple[str, str | None]:
    """The panel of a set."""
    return name.tenant, name.name if name.level is RuleSetLevel.FLOW else None


async def _beside(steps: Iterator[None]) -> None:
    """Bit by bit, beside what else there is to do."""
    for _ in steps:
        await asyncio.sleep(0)


def rulings(sets: Sequence[RuleSet], type_: ExceptionType, task: str, evaluate: Evaluate) -> Rulings:
    """What any sets say, for instance those of another version: as they act, and with their shadows where that is another thing."""
    active = decide(sets, type_, task, evaluate)
    return Rulings(active, _differing(active, decide(sets, type_, task, evaluate, shadow=True)))


def _differing(active: Ruling, shadow: Ruling) -> Ruling | None:
    same = (shadow.verdict, shadow.rule, shadow.flagged) == (active.verdict, active.rule, active.flagged)
    return None if same else shadow
