"""Fuzzed rules are tried as rules from outside are, and what passes is walked as rules are walked; an auditor looks for an act on an error.

The auditor evaluates by the library itself and reads the type of its value, which nothing in the walk does. What an index skips is held
to the same.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from cel_expr_python import cel  # type: ignore[import-untyped]
from tests.system.fuzz_rules.generated import condition, told

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.cel.sandbox import CelSandbox
from forestay.domain.rules.condition import ConditionVerdict, Erred, Evaluate
from forestay.domain.rules.context import read_context
from forestay.domain.rules.rule_index import TreeIndex
from forestay.domain.rules.rule_tree import ROOT, Conclusion, Rule, RuleState, RuleTree, walk

CONTEXTS = 2
GENERAL, REFINED = Conclusion("general"), Conclusion("refined")


@dataclass
class Report:
    """What a campaign saw."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    slowest: float = 0.0
    """Milliseconds of CPU of the slowest evaluation of a text that passed."""
    seconds: float = 0.0

    def add(self, other: Report) -> None:
        self.counts.update(other.counts)
        self.violations += other.violations
        self.slowest = max(self.slowest, other.slowest)
        self.seconds = max(self.seconds, other.seconds)


def campaign(count: int, seed: int) -> Report:
    """Try so many texts; the same seed gives the same texts."""
    chance = random.Random(seed)
    report = Report()
    since = time.monotonic()
    sandbox, conditions = CelSandbox(), CelConditions()
    try:
        for number in range(count):
            _one(chance, sandbox, conditions, report, f"seed {seed}, text {number}")
            if number % 5000 == 4999:
                conditions = CelConditions()
    finally:
        sandbox.end()
    report.seconds = time.monotonic() - since
    return report


def _one(chance: random.Random, sandbox: CelSandbox, conditions: CelConditions, report: Report, name: str) -> None:
    text = condition(chance)
    situations = [told(chance) for _ in range(CONTEXTS)]
    trial = sandbox.try_now(text, situations)
    report.counts["texts"] += 1
    if trial.problems:
        stopped = trial.problems[0].message
        kind = "stopped" if "stopped" in stopped else "past the budget" if "iterations" in stopped else "refused"
        report.counts[kind] += 1
        return
    report.counts["passed"] += 1
    index = TreeIndex(_tree(text), lambda text: not conditions.compile(text))
    for situation, tried in zip(situations, trial.answers, strict=True):
        context, _ = read_context(situation)
        evaluate = conditions.over(context)
        began = time.process_time()
        done = walk(_tree(text), evaluate)
        report.slowest = max(report.slowest, (time.process_time() - began) * 1000)
        truth = _by_the_library(conditions, text, context)
        report.counts[truth] += 1
        wanted = {
            "true": (ConditionVerdict.TRUE, REFINED),
            "false": (ConditionVerdict.TRUE, GENERAL),
        }.get(truth, (ConditionVerdict.ERROR, None))
        if (done.verdict, done.conclusion) != wanted:
            report.violations.append(
                f"{name}: {truth}, and the walk came to {done.verdict} {done.conclusion}: {text!r} on {situation!r}"
            )
        asked: list[str] = []
        quick = index.walk(context, _listed(asked, evaluate))
        report.counts["left out by the index"] += text not in asked
        if quick != done:
            report.violations.append(f"{name}: {done}, and by the index {quick}: {text!r} on {situation!r}")
        if isinstance(tried, bool) != (truth in {"true", "false"}):
            report.violations.append(f"{name}: tried it gave {tried}, now {truth}: {text!r} on {situation!r}")


def _listed(asked: list[str], evaluate: Evaluate) -> Evaluate:
    """Evaluates, and lists what was asked."""

    def listing(text: str) -> bool | Erred:
        asked.append(text)
        return evaluate(text)

    return listing


def _tree(text: str) -> RuleTree:
    """A general rule that always acts, and the text as its refinement."""
    return RuleTree(
        {
            ROOT: Rule(ROOT, "true", state=RuleState.ACTIVE, true_child="g"),
            "g": Rule("g", "true", GENERAL, RuleState.ACTIVE, parent=ROOT, true_child="r"),
            "r": Rule("r", text, REFINED, RuleState.ACTIVE, parent="g"),
        }
    )


def _by_the_library(conditions: CelConditions, text: str, context: Mapping[str, object]) -> str:
    try:
        answer = conditions._running.compile(text).eval(data=dict(context))
    except RuntimeError as error:
        return "past the budget at run" if "budget" in str(error) else "raised"
    if answer.type() == cel.Type.BOOL:
        return "true" if answer.plain_value() else "false"
    return "error" if answer.type() == cel.Type.ERROR else "no truth value"
