"""The rule sets that a replay evaluates, and their decisions about an incident.

Rules are evaluated once for each group of incidents that the evaluated rules cannot distinguish; `DecisionGroups` counts these.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.playbooks.playbook import Playbook, step_as_plain
from forestay.domain.rules.answer import FIELDS_OF_DEFAULT, Answer, answer_of_ruling, default_said
from forestay.domain.rules.context import read_context
from forestay.domain.rules.decision_groups import DecisionGroups, FieldsRead, fields_read
from forestay.domain.rules.incident_outcome import FIELDS_OF_ATTEMPT
from forestay.domain.rules.rule_index import IndexedSet, RuleSetIndex, decide_quickly
from forestay.domain.rules.rule_set import RuleSet, RuleSetId, RuleSetLevel
from forestay.domain.rules.rule_tree import Conclusion
from forestay.ports.rules.conditions import Conditions
from forestay.services.rules.playbook_store import PlaybookStore
from forestay.services.rules.rule_store import DOMAIN, RuleCache

_TASK = "exception.task"


class _Asked(NamedTuple):
    """The sets that are evaluated for the incidents of one flow, and the fields that their rules read."""

    indexes: tuple[RuleSetIndex, ...]
    read: FieldsRead


class _Found(NamedTuple):
    """The result of evaluating the rules."""

    answer: Answer | None
    """None: no rule concludes."""


@dataclass(slots=True)
class ReplayedSets:
    """The sets of a tenant, with the candidate replacing its set; each is prepared when it is first evaluated."""

    cache: RuleCache
    conditions: Conditions
    playbooks: PlaybookStore | None
    candidate: RuleSet
    others: Mapping[RuleSetId, RuleSet]
    groups: DecisionGroups[_Found] = field(default_factory=DecisionGroups)
    named: dict[tuple[str, ExceptionType], Conclusion] = field(default_factory=dict)
    """Conclusions by names of playbooks, with their steps."""
    _ready: dict[RuleSetId, IndexedSet] = field(default_factory=dict)
    _for: dict[str, _Asked] = field(default_factory=dict)
    _shared: RuleSetIndex | None = None

    def read(self) -> FieldsRead:
        """The fields that the rules of all sets read."""
        rule_sets = [self.candidate, *self.others.values()]
        return fields_read(tree for rule_set in rule_sets for tree in rule_set.trees.values())

    def wanted(self) -> frozenset[str]:
        """The fields of an incident without which it cannot be compared."""
        return frozenset(self.read().values) | FIELDS_OF_ATTEMPT | FIELDS_OF_DEFAULT | {_TASK}

    async def decide(self, incident: Incident, facts: Mapping[str, object], flow: str, then: Answer) -> Answer:
        """The decision of the rules on an incident, or of the default policy where no rule concludes."""
        asked = self._for.get(flow) or await self._asked(flow)
        group: Hashable = None
        if not self.groups.alone:
            group = (flow, incident.kind, asked.read.key(facts), facts.get(_TASK))
        found = self.groups.find(group)
        if found is None:
            found = _Found(await self._evaluated(asked, incident.kind, facts, flow))
            self.groups.keep(group, found)
        return default_said(incident, then, facts) if found.answer is None else found.answer

    async def _evaluated(
        self, asked: _Asked, kind: ExceptionType, facts: Mapping[str, object], flow: str
    ) -> Answer | None:
        """The decision of the rules; None where no rule concludes."""
        context, _ = read_context({**facts, "run.flow": flow} if flow else facts)
        ruling = decide_quickly(asked.indexes, kind, str(context[_TASK]), context, self.conditions.over(context))
        if ruling.by is None:
            return None
        conclusion = ruling.conclusion
        if conclusion is not None and conclusion.playbook:
            conclusion = await self._steps_of(conclusion, kind)
        return answer_of_ruling(ruling, conclusion)

    async def _steps_of(self, conclusion: Conclusion, kind: ExceptionType) -> Conclusion:
        """A conclusion with the present steps of its playbook; without steps where there is no such playbook, or it does not fit."""
        key = (conclusion.playbook, kind)
        if key not in self.named:
            self.named[key] = conclusion
            if self.playbooks is not None:
                playbook = await self.playbooks.concluded(self.candidate.id.tenant, conclusion, kind)
                if isinstance(playbook, Playbook):
                    self.named[key] = Conclusion(conclusion.playbook, tuple(map(step_as_plain, playbook.steps)))
        return self.named[key]

    async def _asked(self, flow: str) -> _Asked:
        """The sets in the order of `RuleCache`: the flow's, the domain's, the packs'."""
        tenant = self.candidate.id.tenant
        if self._shared is None:
            packs = sorted(
                rule_set for rule_set in {*self.others, self.candidate.id} if rule_set.level is RuleSetLevel.PACK
            )
            self._shared = await self._panel(RuleSetId(tenant, RuleSetLevel.DOMAIN, DOMAIN), *packs)
        indexes = (await self._panel(RuleSetId(tenant, RuleSetLevel.FLOW, flow)), self._shared)
        trees = (
            index.tree for panel in indexes for indexed_set in panel.sets for index in indexed_set.indexes.values()
        )
        known = self._for[flow] = _Asked(indexes, fields_read(trees))
        return known

    async def _panel(self, *names: RuleSetId) -> RuleSetIndex:
        indexed_sets = [await self._made_ready(name) for name in names]
        return RuleSetIndex(indexed_set for indexed_set in indexed_sets if indexed_set is not None)

    async def _made_ready(self, name: RuleSetId) -> IndexedSet | None:
        rule_set = self.candidate if name == self.candidate.id else self.others.get(name)
        if rule_set is None:
            return None
        if name not in self._ready:
            self._ready[name] = await self.cache.indexed(rule_set)
        return self._ready[name]
