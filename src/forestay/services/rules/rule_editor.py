"""Changes rules: adds a rule for its reference incident, promotes it, removes it, or restores an older version.

A rule is written for an existing incident: its condition must be true on that reference incident. Every earlier reference incident is evaluated again
before the rule is stored; those with a changed result are shown, and the rule is refused unless that is confirmed (P1-33).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.playbooks.playbook import Playbook, step_from_plain
from forestay.domain.playbooks.playbook_check import NAME, check_playbook
from forestay.domain.rules.condition import ConditionVerdict, Erred
from forestay.domain.rules.context import Context, read_context
from forestay.domain.rules.declared_rules import AppliedRule, DeclaredRule, apply_declared
from forestay.domain.rules.rule_set import (
    RuleChange,
    RuleSet,
    RuleSetId,
    RuleSetVersion,
    TreeKey,
    changes_of,
    diff,
    roll_back,
    tree_key,
    with_tree,
)
from forestay.domain.rules.rule_tree import (
    Conclusion,
    Rule,
    RuleChangeRefused,
    RuleState,
    RuleTree,
    Walk,
    add,
    remove,
    walk,
    with_rules,
)
from forestay.ports.clock import Clock
from forestay.ports.errors import Conflict, NotFound
from forestay.ports.rules.conditions import ConditionProblem, Conditions, ConditionSandbox
from forestay.services.rules.playbook_store import PlaybookStore
from forestay.services.rules.rule_store import ReferenceIncident, RuleStore
from forestay.services.shared.recent import Recent

TRIES = 5
"""How often a change is repeated when somebody else changed the set meanwhile."""
KNOWN_CONTEXTS = 20_000
"""The most reference incidents whose contexts are cached."""
LONGEST_WORDS = 2_000


class RuleDraft(NamedTuple):
    """A rule as its author writes it."""

    rule_set: RuleSetId
    type: ExceptionType
    task: str
    condition: str
    conclusion: Conclusion
    reference_incident: str
    """The incident for which it is written."""
    context: Mapping[str, object]
    """The context of that incident."""
    description: str = ""


class Overturned(NamedTuple):
    """An earlier reference incident whose result would change."""

    reference_incident: str
    rule: str
    """The rule that was written for it."""
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Edited:
    """The new version of a changed set."""

    version: RuleSetVersion
    rule: str = ""
    overturned: tuple[Overturned, ...] = ()
    applied: tuple[AppliedRule, ...] = ()
    """For a file of rules: the outcome of each."""


@dataclass(frozen=True, slots=True)
class NotEdited:
    """Nothing was changed; lists all reasons."""

    reasons: tuple[str, ...]
    problems: tuple[ConditionProblem, ...] = ()
    """Problems of the condition's text, with their positions."""
    overturned: tuple[Overturned, ...] = ()
    """If these are confirmed, the change is made."""


class NextRuleSet(NamedTuple):
    """A rule set after a change, and the change itself."""

    rule_set: RuleSet
    changes: tuple[RuleChange, ...]


Made = Callable[[RuleSet], "NextRuleSet | NotEdited"]


def _next(current: RuleSet, key: TreeKey, tree: RuleTree, *rules: str | None) -> NextRuleSet:
    return NextRuleSet(with_tree(current, key, tree), changes_of(key, current.tree(key), tree, rules))


@dataclass(slots=True)
class RuleEditor:
    """The service."""

    rules: RuleStore
    conditions: Conditions
    trying: ConditionSandbox
    clock: Clock
    new_id: Callable[[], str]
    playbooks: PlaybookStore | None = None
    """The playbooks that rules may conclude by name; None: any name is accepted."""
    _contexts: Recent[tuple[str, str], Context] = field(default_factory=lambda: Recent(KNOWN_CONTEXTS))

    async def add(self, draft: RuleDraft, *, by: str, confirmed: bool = False) -> Edited | NotEdited:
        """Add a rule in shadow mode."""
        context, reasons, problems = await check_draft(draft, self.trying, self.playbooks)
        if reasons or problems:
            return NotEdited(reasons, problems)
        key = tree_key(draft.type, draft.task)
        rule = Rule(
            self.new_id(),
            draft.condition,
            draft.conclusion,
            RuleState.SHADOW,
            draft.reference_incident,
            by,
            draft.description,
            self.clock.now(),
        )
        evaluate = self.conditions.over(context)

        def made(current: RuleSet) -> NextRuleSet | NotEdited:
            tree = current.tree(key)
            grown = add(tree, rule, walk(tree, evaluate, shadow=True))
            if isinstance(grown, RuleChangeRefused):
                return NotEdited((grown.reason,))
            return _next(current, key, grown, grown.rules[rule.id].parent, rule.id)

        await self._keep(draft)
        note = f"added for {draft.reference_incident}"
        done = await self._change(draft.rule_set, made, by=by, note=note, confirmed=confirmed, new=rule.id)
        return replace(done, rule=rule.id) if isinstance(done, Edited) else done

    async def apply(
        self,
        rule_set: RuleSetId,
        drafts: Mapping[str, RuleDraft],
        *,
        by: str,
        prune: bool = False,
        confirmed: bool = False,
        dry_run: bool = False,
    ) -> Edited | NotEdited:
        """Apply the rules of a file to the set, by their names, in one version; nothing is stored where nothing differs.

        New and changed rules are added in shadow mode. With `prune`, rules that came from a file and are not among these are removed.
        """
        declared: list[DeclaredRule] = []
        wrong: list[str] = []
        for name, draft in drafts.items():
            context, reasons, problems = await check_draft(draft, self.trying, self.playbooks)
            wrong += [f"{name}: condition: {problem}" for problem in problems]
            wrong += [f"{name}: {reason}" for reason in reasons]
            rule = Rule(
                self.new_id(),
                draft.condition,
                draft.conclusion,
                reference_incident=draft.reference_incident,
                author=by,
                description=draft.description,
                created=self.clock.now(),
                name=name,
            )
            declared.append(DeclaredRule(tree_key(draft.type, draft.task), rule, self.conditions.over(context)))
        if wrong:
            return NotEdited(tuple(wrong))

        async def edited(current: RuleSet) -> Edited | NotEdited:
            result = apply_declared(current, declared, prune=prune)
            if isinstance(result, RuleChangeRefused):
                return NotEdited((result.reason,))
            version = RuleSetVersion(
                rule_set,
                result.rule_set.version,
                diff(current, result.rule_set),
                by,
                self.clock.now(),
                "applied from a file",
            )
            # A rule that the file changes or removes no longer has to answer its old reference incident.
            own = {
                rule.reference_incident
                for tree in current.trees.values()
                for rule in tree.rules.values()
                if rule.name in result.changed
            }
            overturned = tuple(
                entry
                for entry in await self._overturned(current, NextRuleSet(result.rule_set, version.changes), "")
                if entry.reference_incident not in own
            )
            if overturned and not confirmed:
                return NotEdited(("the file would change the result for earlier reference incidents",), (), overturned)
            return Edited(version, overturned=overturned, applied=result.rules)

        if dry_run:
            return await edited(await self.rules.load(rule_set))
        for draft in drafts.values():
            await self._keep(draft)
        return await self._stored(rule_set, edited)

    async def _keep(self, draft: RuleDraft) -> None:
        await self.rules.keep_reference_incident(
            draft.rule_set.tenant,
            ReferenceIncident(
                draft.reference_incident,
                draft.type.value,
                tree_key(draft.type, draft.task).task,
                draft.context,
            ),
        )

    async def promote(
        self,
        rule_set: RuleSetId,
        rule: str,
        *,
        by: str,
        to: RuleState = RuleState.ACTIVE,
        replayed: Mapping[str, object] | None = None,
        expected: int | None = None,
    ) -> Edited | NotEdited:
        """Activate a rule, or return it to shadow mode. An active rule must answer its own reference incident.

        `replayed`, the result of a replay of the set at version `expected`, is stored with the version. `Conflict` if the set has changed since.
        """
        kept = await self._reference_incident_of(rule_set, rule)

        def made(current: RuleSet) -> NextRuleSet | NotEdited:
            if expected is not None and current.version != expected:
                raise Conflict(f"{rule_set} was changed while the rule was replayed; try again")
            pair = current.find(rule)
            if pair is None:
                return NotEdited((f"there is no rule {rule} in {rule_set}",))
            key, other_rule = pair
            if other_rule.state is to:
                return NotEdited((f"rule {rule} is already {to}",))
            tree = with_rules(current.tree(key), replace(other_rule, state=to))
            if to is RuleState.ACTIVE and kept is not None:
                done = walk(tree, self.conditions.over(kept))
                if rule not in {tested.rule for tested in done.path}:
                    above = [r.id for r in tree.way_to(rule)[1:-1] if r.state is RuleState.SHADOW]
                    return NotEdited(
                        (
                            f"it would not be reached for its reference incident: first promote {', '.join(above) or 'the rules above it'}",
                        )
                    )
            return _next(current, key, tree, rule)

        return await self._change(rule_set, made, by=by, note=f"{rule} is {to}", confirmed=True, replayed=replayed)

    async def remove(self, rule_set: RuleSetId, rule: str, *, by: str, confirmed: bool = False) -> Edited | NotEdited:
        """Remove a rule that no other rule refines."""

        def made(current: RuleSet) -> NextRuleSet | NotEdited:
            pair = current.find(rule)
            if pair is None:
                return NotEdited((f"there is no rule {rule} in {rule_set}",))
            key, gone = pair
            rest = remove(current.tree(key), rule)
            if isinstance(rest, RuleChangeRefused):
                return NotEdited((rest.reason,))
            return _next(current, key, rest, gone.parent, rule, gone.false_child)

        return await self._change(rule_set, made, by=by, note=f"{rule} removed", confirmed=confirmed)

    async def roll_back(self, rule_set: RuleSetId, to: int, *, by: str) -> Edited | NotEdited:
        """Restore the content of an older version, as a new version."""
        old = await self.rules.load(rule_set, to)

        async def edited(current: RuleSet) -> Edited | NotEdited:
            version = roll_back(current, old, by=by, at=self.clock.now())
            return NotEdited((version.reason,)) if isinstance(version, RuleChangeRefused) else Edited(version)

        return await self._stored(rule_set, edited)

    async def diff(self, rule_set: RuleSetId, old: int, new: int | None = None) -> tuple[RuleChange, ...]:
        """The differences between two versions, the newest unless given."""
        return diff(await self.rules.load(rule_set, old), await self.rules.load(rule_set, new))

    async def _change(
        self,
        rule_set: RuleSetId,
        made: Made,
        *,
        by: str,
        note: str,
        confirmed: bool,
        new: str = "",
        replayed: Mapping[str, object] | None = None,
    ) -> Edited | NotEdited:
        async def edited(current: RuleSet) -> Edited | NotEdited:
            later = made(current)
            if isinstance(later, NotEdited):
                return later
            overturned = await self._overturned(current, later, new)
            if overturned and not confirmed:
                return NotEdited(("this rule would change the result for earlier reference incidents",), (), overturned)
            version = RuleSetVersion(rule_set, current.version + 1, later.changes, by, self.clock.now(), note, replayed)
            return Edited(version, overturned=overturned)

        return await self._stored(rule_set, edited)

    async def _stored(
        self, rule_set: RuleSetId, edit: Callable[[RuleSet], Awaitable[Edited | NotEdited]]
    ) -> Edited | NotEdited:
        """Store the version that an edit makes of the newest one; after a conflict the edit is repeated."""
        for _ in range(TRIES):
            current = await self.rules.load(rule_set)
            edited = await edit(current)
            if isinstance(edited, NotEdited) or edited.version.number == current.version:
                return edited
            with suppress(Conflict):
                await self.rules.store(edited.version)
                return edited
        raise Conflict(f"{rule_set} is being changed by others; try again")

    async def _overturned(self, old: RuleSet, later: NextRuleSet, added: str) -> tuple[Overturned, ...]:
        """The reference incidents of every changed tree whose result would change, including shadow rules."""
        overturned: list[Overturned] = []
        for key in dict.fromkeys(change.key for change in later.changes):
            before, after = old.tree(key), later.rule_set.tree(key)
            # In a thread: with very many rules even iterating over them would block other requests.
            written = await asyncio.to_thread(_written_for, before)
            contexts = await self._read(old.id.tenant, list(written))
            overturned += await asyncio.to_thread(self._compare, before, after, written, contexts, added)
        return tuple(overturned)

    def _compare(
        self, before: RuleTree, after: RuleTree, written: Mapping[str, str], contexts: Mapping[str, Context], added: str
    ) -> Sequence[Overturned]:
        overturned: list[Overturned] = []
        for name, context in contexts.items():
            evaluate = self.conditions.over(context)
            if added and evaluate(after.rules[added].condition) is False:
                continue  # a rule that is false there changes nothing there
            was, is_ = walk(before, evaluate, shadow=True), walk(after, evaluate, shadow=True)
            if (was.verdict, was.conclusion) != (is_.verdict, is_.conclusion):
                overturned.append(Overturned(name, written[name], _told(was), _told(is_)))
        return overturned

    async def _read(self, tenant: str, names: Sequence[str]) -> Mapping[str, Context]:
        known = {name: self._contexts[tenant, name] for name in names if (tenant, name) in self._contexts}
        missing = [name for name in names if name not in known]
        for reference_incident in (await self.rules.reference_incidents(tenant, missing)).values():
            context = read_context(reference_incident.context)[0]
            known[reference_incident.id] = self._contexts[tenant, reference_incident.id] = context
        return known

    async def _reference_incident_of(self, rule_set: RuleSetId, rule: str) -> Context | None:
        pair = (await self.rules.load(rule_set)).find(rule)
        if pair is None:
            raise NotFound(f"there is no rule {rule} in {rule_set}")
        name = pair[1].reference_incident
        return (await self._read(rule_set.tenant, [name])).get(name) if name is not None else None


class CheckedDraft(NamedTuple):
    """The context of a draft's reference incident, and all problems of the rule and of its condition's text."""

    context: Context
    reasons: tuple[str, ...]
    problems: tuple[ConditionProblem, ...]


async def check_draft(draft: RuleDraft, trying: ConditionSandbox, playbooks: PlaybookStore | None) -> CheckedDraft:
    """Check a rule before it is added or replayed. Its condition is first tried in a process of its own."""
    context, wrong = read_context(draft.context)
    reasons = [*(f"context: {problem}" for problem in wrong), *check_conclusion(draft.conclusion, draft.type)]
    if playbooks is not None and not reasons:
        concluded = await playbooks.concluded(draft.rule_set.tenant, draft.conclusion, draft.type)
        reasons += [concluded] if isinstance(concluded, str) else []
    if len(draft.description) > LONGEST_WORDS:
        reasons.append(f"the description is longer than {LONGEST_WORDS} characters")
    trial = await trying.try_out(draft.condition, [context])
    if not trial.problems:
        answer = trial.answers[0]
        if isinstance(answer, Erred):
            reasons.append(f"the condition has an error on its reference incident: {answer.message}")
        elif answer is False:
            reasons.append("the condition is not true for its reference incident")
    return CheckedDraft(context, tuple(reasons), trial.problems)


def check_conclusion(conclusion: Conclusion, type_: ExceptionType) -> tuple[str, ...]:
    """All problems of a rule's conclusion."""
    if conclusion.empty:
        return ("a rule needs a conclusion: a playbook or at least one step",)
    if conclusion.playbook and conclusion.steps:
        return ("a rule concludes a playbook by its name or steps of its own, not both",)
    if conclusion.playbook:
        return (
            ()
            if NAME.fullmatch(conclusion.playbook)
            else (f"{conclusion.playbook!r} is not a valid name of a playbook",)
        )
    try:
        steps = tuple(step_from_plain(step) for step in conclusion.steps)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        return (f"a step cannot be read: {type(error).__name__}: {error}",)
    return tuple(
        f"{problem.where}: {problem.message}" for problem in check_playbook(Playbook("in-place", steps), type_)
    )


def _written_for(tree: RuleTree) -> Mapping[str, str]:
    return {rule.reference_incident: rule.id for rule in tree.rules.values() if rule.reference_incident is not None}


def _told(done: Walk) -> str:
    if done.verdict is ConditionVerdict.ERROR:
        return f"rule {done.flagged} has an evaluation error"
    return f"rule {done.last_satisfied}" if done.verdict is ConditionVerdict.TRUE else "no rule"


def found_at(rule_set: RuleSet, rule: str) -> tuple[TreeKey, Rule]:
    """A rule of a set; `NotFound`."""
    place = rule_set.find(rule)
    if place is None:
        raise NotFound(f"there is no rule {rule} in {rule_set.id}")
    return place
