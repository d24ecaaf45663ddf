"""A copy of all rules, at most half a second old, and the decisions made with it.

Every process that evaluates rules has one. It reads one small document a few times a second; the changes of a new version are read,
its conditions are compiled, and then the new set replaces the old one: evaluations never wait.
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
from forestay.domain.rules.rule_index import IndexedSet, RuleSetIndex, TreeIndex, decide_quickly
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
from forestay.domain.rules.rule_tree import RuleChangeRefused, RuleState, RuleTree
from forestay.ports.errors import Permanent, PortError, Transient
from forestay.ports.jobs.job_store import Version as DocumentVersion
from forestay.ports.rules.conditions import Conditions
from forestay.services.rules.rule_store import RuleStore, heads_in

DOMAIN = "site"
"""The name of a domain's own rule set."""
THOROUGH = 75
"""After this many refreshes all heads are searched: this finds one whose writer died before it set the mark."""
COMPILED_AT_ONCE = 4
"""Conditions that are compiled between two turns of the event loop, which takes about a millisecond."""
FEW = 100
"""Up to this many versions are applied one by one."""
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
    """Counts the versions that the copy has applied, for callers that wait for new rules."""
    _sets: dict[RuleSetId, IndexedSet] = field(default_factory=dict)
    _set_indexes: dict[tuple[str, str | None], RuleSetIndex] = field(default_factory=dict)
    """By tenant and flow, the flow's own set; by tenant and no flow, the domain's set and the packs, which apply to every flow."""
    _unreadable: dict[RuleSetId, str] = field(default_factory=dict)
    """Sets whose newest version cannot be read, and why."""
    _mark: DocumentVersion | None = None
    _fresh: float | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def age(self) -> float:
        """Seconds since the copy was last known to be complete; infinite before that."""
        return float("inf") if self._fresh is None else self.monotonic() - self._fresh

    async def run(self) -> None:
        """Keep the copy fresh. While the store does not answer, the last known rules apply."""
        while True:
            with suppress(PortError):
                await self.refresh()
            await asyncio.sleep(self.every)

    async def refresh(self) -> None:
        """Apply the changes since the last time."""
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
        """Apply a version, or note why it cannot be read: an unreadable set affects only the decisions that use it."""
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
                # The rules are long-lived: scanning them in every garbage collection would block the process for a tenth of a second.
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
        """Prepare any set for evaluation, in slices; it is not kept in the copy."""
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
        # No await from here on: no decision must mix old and new trees.
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
        """A set in the copy; an empty one where there is none."""
        known = self._sets.get(rule_set)
        return known.rule_set if known is not None else RuleSet(rule_set)

    def sets_of(self, tenant: str) -> Sequence[RuleSet]:
        """Every set of a tenant."""
        return in_order(
            indexed_set.rule_set for indexed_set in self._sets.values() if indexed_set.rule_set.id.tenant == tenant
        )

    def sets_for(self, tenant: str, flow: str) -> tuple[RuleSet, ...]:
        """The sets that are evaluated for an exception of a flow: the flow's, the domain's, the packs'. `flow` is its name."""
        return tuple(indexed_set.rule_set for indexed_set in self._asked(tenant, flow))

    def _asked(self, tenant: str, flow: str) -> tuple[IndexedSet, ...]:
        return tuple(indexed_set for set_index in self._panels_for(tenant, flow) for indexed_set in set_index.sets)

    def _panels_for(self, tenant: str, flow: str) -> list[RuleSetIndex]:
        indexes = (self._set_indexes.get((tenant, flow)), self._set_indexes.get((tenant, None)))
        return [index for index in indexes if index is not None]

    def has_tree(self, tenant: str, flow: str, type_: ExceptionType, task: str, *, own: bool = False) -> bool:
        """Whether any tree would be evaluated for an exception; with ``own``, a tree for this task itself."""
        keys = (TreeKey(type_, task),) if own else keys_for(type_, task)
        return any(key in indexed_set.indexes for indexed_set in self._asked(tenant, flow) for key in keys)

    def decide(self, tenant: str, flow: str, type_: ExceptionType, task: str, context: Context) -> Rulings:
        """The decision of the rules on an exception. `Transient` before the first refresh, `Permanent` if one of the sets cannot be read: part of the rules must not decide."""
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
    """The index to which a set belongs."""
    return name.tenant, name.name if name.level is RuleSetLevel.FLOW else None


async def _beside(steps: Iterator[None]) -> None:
    """Do work in slices, so that other tasks run in between."""
    for _ in steps:
        await asyncio.sleep(0)


def rulings(sets: Sequence[RuleSet], type_: ExceptionType, task: str, evaluate: Evaluate) -> Rulings:
    """The decisions of any sets, for instance of another version: of the active rules, and including shadow rules where that differs."""
    active = decide(sets, type_, task, evaluate)
    return Rulings(active, _differing(active, decide(sets, type_, task, evaluate, shadow=True)))


def _differing(active: Ruling, shadow: Ruling) -> Ruling | None:
    same = (shadow.verdict, shadow.rule, shadow.flagged) == (active.verdict, active.rule, active.flagged)
    return None if same else shadow
