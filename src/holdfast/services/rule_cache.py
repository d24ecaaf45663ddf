"""A copy of all rules, at most half a second old, and the decisions that are made by it.

Whoever evaluates rules has one. It reads one small document a few times a second; a version that it does not have is read as what it
changed, its conditions are compiled, and then the set is put in the place of the old one: nobody who walks waits for anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.domain.faults.exception_type import ExceptionType
from holdfast.domain.rules.condition import Evaluate
from holdfast.domain.rules.context import Context
from holdfast.domain.rules.rule_set import Level, RuleSet, RuleSetId, Ruling, decide, diff, in_order
from holdfast.ports.conditions import Conditions
from holdfast.ports.errors import PortError, Transient
from holdfast.ports.job_store import Version as SlipVersion
from holdfast.services.keep_rules import KeepRules, heads_in

DOMAIN = "house"
"""The name of a domain's own rule set."""
THOROUGH = 75
"""Every so many looks all heads are searched for: one whose writer died before it set the mark is found so."""
COMPILED_AT_ONCE = 20
"""Conditions that are compiled between two turns of the loop: a millisecond or so each five."""


class Rulings(NamedTuple):
    """What the active rules say, which may act; and what they would say with the shadows, where that is another thing."""

    active: Ruling
    shadow: Ruling | None


@dataclass(slots=True)
class RuleCache:
    """The service. `run` keeps it fresh."""

    rules: KeepRules
    conditions: Conditions
    every: float = 0.4
    monotonic: Callable[[], float] = time.monotonic
    looks: int = 0
    taken_over: int = 0
    """Counts the versions that the copy has taken over: whoever waits for new rules looks at it."""
    _sets: dict[RuleSetId, RuleSet] = field(default_factory=dict)
    _shadowed: dict[RuleSetId, bool] = field(default_factory=dict)
    _packs: dict[str, tuple[RuleSet, ...]] = field(default_factory=dict)
    _mark: SlipVersion | None = None
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
                    for one, number in (await self.rules.heads()).items():
                        heads[one] = max(number, heads.get(one, 0))
                for one, number in heads.items():
                    known = self._sets.get(one)
                    if known is None or known.version < number:
                        await self._take_over(one, number)
                self._mark = version
            self._fresh = began

    async def _take_over(self, name: RuleSetId, number: int) -> None:
        later = await self.rules.load(name, number)
        known = self._sets.get(name, RuleSet(name))
        changes = diff(known, later)
        for place, change in enumerate(changes):
            if change.after is not None:
                self.conditions.compile(change.after.condition)
            if place % COMPILED_AT_ONCE == COMPILED_AT_ONCE - 1:
                await asyncio.sleep(0)
        self._sets[name] = later
        self.taken_over += 1
        self._shadowed[name] = any(tree.shadowed for tree in later.trees.values())
        packs = [one for one in self._sets.values() if one.id.tenant == name.tenant and one.id.level is Level.PACK]
        self._packs[name.tenant] = in_order(packs)

    def known(self, rule_set: RuleSetId) -> RuleSet:
        """A set as the copy has it; the empty one where it has none."""
        return self._sets.get(rule_set, RuleSet(rule_set))

    def sets_of(self, tenant: str) -> Sequence[RuleSet]:
        """Every set of a tenant."""
        return in_order(one for one in self._sets.values() if one.id.tenant == tenant)

    def sets_for(self, tenant: str, flow: str) -> tuple[RuleSet, ...]:
        """The sets that are asked about an exception of a flow: the flow's, the domain's, the packs'. `flow` is its name."""
        own = [
            self._sets[one]
            for one in (RuleSetId(tenant, Level.FLOW, flow), RuleSetId(tenant, Level.DOMAIN, DOMAIN))
            if one in self._sets
        ]
        return (*own, *self._packs.get(tenant, ()))

    def decide(self, tenant: str, flow: str, type_: ExceptionType, task: str, context: Context) -> Rulings:
        """What the rules say to an exception. `Transient` while nothing is known yet: nobody decides by half of the rules."""
        if self._fresh is None:
            raise Transient("the rules are not read yet")
        return rulings(self.sets_for(tenant, flow), type_, task, self.conditions.over(context), self._shadowed)


def rulings(
    sets: Sequence[RuleSet],
    type_: ExceptionType,
    task: str,
    evaluate: Evaluate,
    shadowed: Mapping[RuleSetId, bool] | None = None,
) -> Rulings:
    """Ask the sets as they act, and with their shadows if any of them has some."""
    active = decide(sets, type_, task, evaluate)
    if shadowed is not None and not any(shadowed.get(one.id) for one in sets):
        return Rulings(active, None)
    shadow = decide(sets, type_, task, evaluate, shadow=True)
    same = (shadow.verdict, shadow.rule, shadow.flagged) == (active.verdict, active.rule, active.flagged)
    return Rulings(active, None if same else shadow)
