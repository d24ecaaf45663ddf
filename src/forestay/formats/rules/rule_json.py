"""Rules, rule sets and their versions as JSON types, for the store and the HTTP interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.in_words import conclusion_in_words, effective_rule, tree_in_words
from forestay.domain.rules.rule_set import RuleChange, RuleSet, RuleSetId, RuleSetLevel, RuleSetVersion, Ruling, TreeKey
from forestay.domain.rules.rule_tree import ROOT, Conclusion, Rule, RuleState, RuleTree

Plain = dict[str, Any]


def rule_as_plain(rule: Rule) -> Plain:
    """A rule with its links; empty fields are left out."""
    plain: Plain = {"id": rule.id, "condition": rule.condition, "conclusion": conclusion_as_plain(rule.conclusion)}
    plain |= {"state": rule.state.value, "reference_incident": rule.reference_incident, "author": rule.author}
    plain |= {"description": rule.description, "created": rule.created}
    plain |= {"parent": rule.parent, "true_child": rule.true_child, "false_child": rule.false_child, "name": rule.name}
    return {name: value for name, value in plain.items() if value not in (None, "", 0, {})}


def rule_from_plain(plain: Mapping[str, Any]) -> Rule:
    """Read a rule that was written by `rule_as_plain`."""
    return Rule(
        plain["id"],
        plain["condition"],
        conclusion_from_plain(plain.get("conclusion", {})),
        RuleState(plain["state"]),
        plain.get("reference_incident"),
        plain.get("author", ""),
        plain.get("description", ""),
        plain.get("created", 0),
        plain.get("parent"),
        plain.get("true_child"),
        plain.get("false_child"),
        plain.get("name", ""),
    )


def conclusion_as_plain(conclusion: Conclusion) -> Plain:
    if conclusion.playbook:
        return {"playbook": conclusion.playbook}
    return {"steps": [dict(step) for step in conclusion.steps]} if conclusion.steps else {}


def conclusion_from_plain(plain: Mapping[str, Any]) -> Conclusion:
    return Conclusion(plain.get("playbook", ""), tuple(plain.get("steps", ())))


def change_as_plain(change: RuleChange) -> Plain:
    plain: Plain = {"type": change.key.type.value, "task": change.key.task, "rule": change.rule}
    if change.before is not None:
        plain["before"] = rule_as_plain(change.before)
    if change.after is not None:
        plain["after"] = rule_as_plain(change.after)
    return plain


def change_from_plain(plain: Mapping[str, Any]) -> RuleChange:
    return RuleChange(
        TreeKey(ExceptionType(plain["type"]), plain["task"]),
        plain["rule"],
        rule_from_plain(plain["before"]) if "before" in plain else None,
        rule_from_plain(plain["after"]) if "after" in plain else None,
    )


def set_as_plain(rule_set: RuleSetId) -> Plain:
    return {"tenant": rule_set.tenant, "level": rule_set.level.value, "name": rule_set.name}


def version_as_plain(version: RuleSetVersion) -> Plain:
    return {
        "rule_set": set_as_plain(version.rule_set),
        "number": version.number,
        "by": version.by,
        "at": version.at,
        "note": version.note,
        "changes": [change_as_plain(change) for change in version.changes],
    } | ({"replayed": dict(version.replayed)} if version.replayed is not None else {})


def version_from_plain(plain: Mapping[str, Any]) -> RuleSetVersion:
    whose = plain["rule_set"]
    return RuleSetVersion(
        RuleSetId(whose["tenant"], RuleSetLevel(whose["level"]), whose["name"]),
        plain["number"],
        tuple(change_from_plain(change) for change in plain["changes"]),
        plain["by"],
        plain["at"],
        plain.get("note", ""),
        plain.get("replayed"),
    )


# Display forms


def rule_shown(rule_set: RuleSet, key: TreeKey, rule: Rule) -> Plain:
    """A rule for display: its position, and its meaning there in words."""
    tree = rule_set.tree(key)
    return {
        "type": key.type.value,
        "task": key.task,
        **rule_as_plain(rule),
        "effective": effective_rule(tree, rule.id),
        "does": conclusion_in_words(rule.conclusion),
    }


def set_shown(rule_set: RuleSet) -> Plain:
    """A whole rule set for display, tree by tree, each also in words."""
    return {
        **set_as_plain(rule_set.id),
        "version": rule_set.version,
        "rules": len(rule_set),
        "trees": [_tree_shown(key, tree) for key, tree in sorted(rule_set.trees.items())],
    }


def _tree_shown(key: TreeKey, tree: RuleTree) -> Plain:
    return {
        "type": key.type.value,
        "task": key.task,
        "words": list(tree_in_words(tree)),
        "rules": [rule_as_plain(rule) for rule, _ in tree.in_order()],
    }


def change_shown(change: RuleChange) -> Plain | None:
    """One change for display; None for a rule of which only the links changed, because other rules were added to it."""
    before, after = change.before, change.after
    if change.rule == ROOT:
        return None
    shown: Plain = {"type": change.key.type.value, "task": change.key.task, "rule": change.rule}
    if before is None and after is not None:
        return shown | {"change": "added", "after": rule_as_plain(after)}
    if before is not None and after is None:
        return shown | {"change": "removed", "before": rule_as_plain(before)}
    if before is None or after is None:
        return None
    if before.state is not after.state:
        return shown | {
            "change": "promoted" if after.state is RuleState.ACTIVE else "withdrawn",
            "after": rule_as_plain(after),
        }
    row = ("condition", "conclusion", "description", "reference_incident")
    if any(getattr(before, name) != getattr(after, name) for name in row):
        return shown | {"change": "changed", "before": rule_as_plain(before), "after": rule_as_plain(after)}
    return None


def ruling_shown(ruling: Ruling) -> Plain:
    """The result of the rules, with every walk."""
    return {
        "verdict": ruling.verdict.value,
        "rule": ruling.rule,
        "flagged": ruling.flagged,
        "conclusion": conclusion_as_plain(ruling.conclusion) if ruling.conclusion else None,
        "walks": [
            {
                "rule_set": set_as_plain(set_walk.rule_set),
                "version": set_walk.version,
                "type": set_walk.key.type.value,
                "task": set_walk.key.task,
                "verdict": set_walk.walk.verdict.value,
                "last_satisfied": set_walk.walk.last_satisfied,
                "last_tested": set_walk.walk.last_tested,
                "path": [
                    {"rule": tested.rule, "verdict": tested.verdict.value, "message": tested.message}
                    for tested in set_walk.walk.path
                    if tested.rule != ROOT
                ],
            }
            for set_walk in ruling.walks
        ],
    }
