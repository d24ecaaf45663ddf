"""Rules: how long a decision takes with many rules, and how long a rule that is added holds anything up.

    just bench rules
    just bench rules --rules 10000,100000 --decisions 2000

The shape: a flow's own rules by task, a domain's rules, five packs' rules; conditions as people write them (a cause with a pattern, an
exit code, a job's name, a label, numbers, lines of a log), and a few general ones in each tree, by which nothing can be looked up. Half of the exceptions are answered by
some rule, half by none, and these ask every set. `evaluated` is the plain walk, which evaluates rule after rule. `path` asks trees in which one rule
refines the other, so deep that the way down is 2 to 64 rules long. `cel-python` evaluates single conditions of the same rules on the same contexts, made ready
for it before: `uv run --with cel-python python -m bench.rules`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from bench.harness import keep, leave
from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.context import Context, read_context
from forestay.domain.rules.rule_index import IndexedSet, RuleSetIndex, decide_quickly
from forestay.domain.rules.rule_set import (
    RuleSet,
    RuleSetId,
    RuleSetLevel,
    RuleSetVersion,
    TreeKey,
    changes_of,
    decide,
    diff,
    with_tree,
)
from forestay.domain.rules.rule_tree import ROOT, Conclusion, Rule, RuleState, RuleTree, add, walk
from forestay.services.rules import rule_store
from forestay.services.rules.rule_store import RuleCache, RuleStore

GOALS = {10_000: 100.0, 100_000: 5.0}
PAUSE = 1.0
STRAIGHT = 0.98
PEER = 300.0
DEPTHS = (2, 4, 8, 16, 24, 32, 48, 64)
CAUSES = [cause.value for cause in Cause]
TASKS = 40
GENERAL = 5
ABORT = ExceptionType.ABORT


def condition(chance: random.Random, many: int) -> tuple[str, dict[str, object]]:
    """A condition, and a context on which it is true."""
    cause, number = chance.choice(CAUSES), chance.randrange(many)
    kind = chance.random()
    fields: dict[str, object] = {"cause": cause, "job.attempt": 1}
    if kind < 0.40:
        return f'cause == "{cause}" && pattern == "p{number}"', {**fields, "pattern": f"p{number}"}
    if kind < 0.60:
        code, name = chance.randrange(1, 200), f"align_{number}"
        text = f'cause == "{cause}" && evidence.exit_code == {code} && job.name == "{name}"'
        return text, {**fields, "evidence.exit_code": code, "job.name": name}
    if kind < 0.75:
        text = f'pattern == "p{number}" && job.attempt < {chance.randrange(2, 6)} && confidence > 0.5'
        return text, {**fields, "pattern": f"p{number}", "confidence": 0.9}
    if kind < 0.85:
        text = f'job.name == "align_{number}" && evidence.peak_memory != null && evidence.peak_memory > job.memory'
        return text, {**fields, "job.name": f"align_{number}", "evidence.peak_memory": 10, "job.memory": 5}
    if kind < 0.95:
        text = f'host.name == "node{number}" && evidence.log_tail.exists(line, line.contains("error {number}"))'
        return text, {**fields, "host.name": f"node{number}", "evidence.log_tail": ["x"] * 20 + [f"error {number}"]}
    if kind < 0.97:
        text = f'pattern in ["p{number}", "q{number}"] && job.attempt < 4'
        return text, {**fields, "pattern": f"q{number}"}
    text = f'"team{number}" in job.labels && job.labels["team{number}"] == "yes"'
    return text, {**fields, "job.labels": {f"team{number}": "yes"}}


def general(chance: random.Random) -> tuple[str, dict[str, object]]:
    """A condition by which nothing can be looked up. There are a few in every tree, however large it is."""
    many = chance.randrange(5, 50)
    return f"history.cause_1h > {many * 100} && job.attempt > {many}", {
        "history.cause_1h": many * 200,
        "job.attempt": many + 1,
    }


def tree(chance: random.Random, count: int, prefix: str, contexts: list[dict[str, object]]) -> RuleTree:
    """So many rules, one in five a refinement."""
    rules = {ROOT: Rule(ROOT, "true", state=RuleState.ACTIVE)}
    last, refined = ROOT, ""
    for number in range(count):
        text, context = condition(chance, max(count, 1000)) if number >= GENERAL else general(chance)
        contexts.append(context)
        name = f"{prefix}{number}"
        on, true = (last, last == ROOT) if not refined else (refined, True)
        rules[name] = Rule(name, text, Conclusion("hold"), RuleState.ACTIVE, parent=on)
        above = rules[on]
        links = {"true_child": name} if true else {"false_child": name}
        rules[on] = Rule(
            above.id, above.condition, above.conclusion, above.state, parent=above.parent,
            true_child=links.get("true_child", above.true_child), false_child=links.get("false_child", above.false_child),
        )  # fmt: skip
        if refined:
            refined = ""
        else:
            last = name
            refined = name if chance.random() < 0.25 else ""
    return RuleTree(rules)


def sets_of(count: int, seed: int) -> tuple[list[RuleSet], list[Context]]:
    chance, results = random.Random(seed), list[dict[str, object]]()
    flow = RuleSet(RuleSetId("bench", RuleSetLevel.FLOW, "reads"))
    for task in range(TASKS):
        flow = with_tree(flow, TreeKey(ABORT, f"task{task}"), tree(chance, count // 100, f"f{task}-", results))
    scenario = RuleSet(RuleSetId("bench", RuleSetLevel.DOMAIN, "site"))
    scenario = with_tree(scenario, TreeKey(ABORT, "*"), tree(chance, count * 3 // 10, "d-", results))
    packs = [
        with_tree(RuleSet(RuleSetId("bench", RuleSetLevel.PACK, f"pack{n}")), TreeKey(ABORT, "*"), tree(chance, count * 6 // 100, f"p{n}-", results))
        for n in range(5)
    ]  # fmt: skip
    strangers = [
        {"cause": chance.choice(CAUSES), "pattern": "none", "job.name": "other", "host.name": "elsewhere", "job.attempt": 1}
        for _ in range(200)
    ]  # fmt: skip
    contexts = [read_context(result)[0] for result in chance.sample(results, 200) + strangers]
    chance.shuffle(contexts)
    return [flow, scenario, *packs], contexts


def measure(decisions: int, contexts: list[Context], ask: Callable[[Context], object]) -> dict[str, float]:
    for context in contexts[:20]:
        ask(context)
    each: list[float] = []
    for number in range(decisions):
        context = contexts[number % len(contexts)]
        since = time.perf_counter()
        ask(context)
        each.append((time.perf_counter() - since) * 1e6)
    # Once more for the processor time: to ask the clock of a thread takes as long as a tenth of a decision.
    used = time.thread_time()
    for number in range(decisions):
        ask(contexts[number % len(contexts)])
    cpu = (time.thread_time() - used) / decisions * 1e6
    each.sort()
    p50, p99 = each[len(each) // 2], each[len(each) * 99 // 100]
    return {"mean": statistics.fmean(each), "p50": p50, "p99": p99, "cpu": cpu}


def path(turns: int) -> dict[str, object]:
    """CPU time of a decision by how many rules there are on its path, and how straight the line through the points is."""
    context, _ = read_context({"cause": "memory", "job.attempt": 3})
    asks = {}
    for depth in DEPTHS:
        rules = {ROOT: Rule(ROOT, "true", state=RuleState.ACTIVE, true_child="r1")}
        for number in range(1, depth + 1):
            below = f"r{number + 1}" if number < depth else None
            above = f"r{number - 1}" if number > 1 else ROOT
            text = f'cause == "memory" && job.attempt > {number - 100}'
            rules[f"r{number}"] = Rule(
                f"r{number}", text, Conclusion("hold"), RuleState.ACTIVE, parent=above, true_child=below
            )
        ready = with_tree(
            RuleSet(RuleSetId("bench", RuleSetLevel.DOMAIN, "deep")), TreeKey(ABORT, "*"), RuleTree(rules)
        )
        asks[depth] = [RuleSetIndex([IndexedSet(ready, lambda _: True)])]
    conditions = CelConditions()
    # In turns: what else runs on the machine meets all depths alike.
    each: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    for _ in range(turns):
        for depth, panels in asks.items():
            since = time.thread_time()
            for _ in range(50):
                decide_quickly(panels, ABORT, "task7", context, conditions.over(context))
            each[depth].append((time.thread_time() - since) / 50 * 1e6)
    took = {depth: statistics.median(times) for depth, times in each.items()}
    line = statistics.linear_regression(list(took), list(took.values()))
    straight = statistics.correlation(list(took), list(took.values())) ** 2
    return {"by_depth": took, "per_rule": line.slope, "at_none": line.intercept, "r2": straight}


def beside_peer(sets: list[RuleSet], contexts: list[Context], count: int) -> float | None:
    """Microseconds of CPU for one condition by cel-python, its context made ready before; None where it is not installed."""
    try:
        celpy = import_module("celpy")
    except ImportError:
        return None
    environment = celpy.Environment()
    texts = [
        rule.condition for rule in sets[1].tree(TreeKey(ABORT, "*")).rules.values() if "log_tail" not in rule.condition
    ]
    each: list[float] = []
    for place in range(count):
        program = environment.program(environment.compile(texts[place * 17 % len(texts)]))
        nested: dict[str, object] = {}
        for name, value in contexts[place % len(contexts)].items():
            group, _, inner = name.partition(".")
            if inner:
                nested.setdefault(group, {})[inner] = value  # type: ignore[index]
            else:
                nested[name] = value
        made = {name: celpy.json_to_cel(value) for name, value in nested.items()}
        since = time.thread_time()
        with suppress(celpy.CELEvalError):
            program.evaluate(made)
        each.append((time.thread_time() - since) * 1e6)
    return statistics.median(each)


def function(turns: int, contexts: list[Context]) -> float:
    """Microseconds of CPU of a plain Python function that compares two fields."""

    def asked(context: Context) -> bool:
        return context["cause"] == "memory" and context["pattern"] == "p1"

    since = time.thread_time()
    for number in range(turns):
        asked(contexts[number % len(contexts)])
    return (time.thread_time() - since) / turns * 1e6


async def pause(sets: list[RuleSet], conditions: CelConditions, added: int) -> dict[str, float]:
    """The longest CPU time for which the loop was held up while rules were added and every one was taken over by a copy."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = SqlJobStore(f"sqlite:///{Path(folder)}/jobs.db")
        await jobs.open()
        rules = RuleStore(SqlDocumentStore(jobs.database))
        scenario = sets[1]
        current = RuleSet(scenario.id)
        changes = diff(current, scenario)
        # To begin with many at once, which nobody does by hand.
        rule_store.MOST_CHANGES = max(rule_store.MOST_CHANGES, len(changes))
        number = 1
        await rules.store(RuleSetVersion(scenario.id, number, changes, "bench", 0))
        current = RuleSet(scenario.id, number, scenario.trees)
        cache = RuleCache(rules, conditions)
        await cache.refresh()
        key = TreeKey(ABORT, "*")
        longest: list[float] = []
        reached: list[float] = []
        on = walk(current.tree(key), lambda _: False, shadow=True)
        for place in range(added):
            before = current.tree(key)
            name = f"new{place}"
            grown = add(before, Rule(name, f'cause == "memory" && pattern == "new{place}"', Conclusion("hold")), on)
            assert isinstance(grown, RuleTree)
            version = RuleSetVersion(
                scenario.id, current.version + 1, changes_of(key, before, grown, (on.last_tested, name)), "bench", 0
            )
            current = with_tree(current, key, grown)
            on = replace(on, tree=grown, last_tested=name)
            heartbeat = asyncio.create_task(_longest_gap())
            await asyncio.sleep(0)
            since = time.perf_counter()
            await rules.store(version)
            await cache.refresh()
            reached.append((time.perf_counter() - since) * 1000)
            heartbeat.cancel()
            longest.append(await heartbeat)
            assert cache.known(scenario.id).version == version.number
        quiet = asyncio.create_task(_longest_gap())
        await asyncio.sleep(0.2)
        quiet.cancel()
        idle = await quiet
        await jobs.close()
    return {
        "p50": statistics.median(longest),
        "max": max(longest),
        "idle": idle,
        "taken_over": statistics.median(reached),
    }


async def _longest_gap() -> float:
    """In CPU time of the loop's own thread: what other processes take from it is no pause of ours."""
    longest, last = 0.0, time.thread_time()
    try:
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
    except asyncio.CancelledError:
        return longest * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", default="10000,100000")
    parser.add_argument("--decisions", type=int, default=4000)
    parser.add_argument("--evaluated", type=int, default=20, help="decisions by the plain walk; 0: none")
    parser.add_argument("--added", type=int, default=30)
    parser.add_argument("--turns", type=int, default=40, help="turns of the measurement by the length of the path")
    asked = parser.parse_args()
    gc.set_threshold(50_000, 20, 20)  # as every process has it
    facts: dict[str, object] = {}
    reached = True
    print(f"{'rules':>8} {'walk':>10} {'mean µs':>10} {'p50 µs':>10} {'p99 µs':>10} {'CPU µs':>10}")
    for count in map(int, asked.rules.split(",")):
        sets, contexts = sets_of(count, seed=count)
        conditions = CelConditions()
        rules = sum(map(len, sets))
        texts = {
            rule.condition for rule_set in sets for each in rule_set.trees.values() for rule in each.rules.values()
        }
        since = time.perf_counter()
        wrong = [text for text in texts if conditions.compile(text)]
        assert not wrong, wrong[0]
        compiled = time.perf_counter() - since
        since = time.perf_counter()
        indexed = [IndexedSet(rule_set, lambda _: True) for rule_set in sets]
        panels = [RuleSetIndex(indexed[:1]), RuleSetIndex(indexed[1:])]
        built = time.perf_counter() - since
        gc.freeze()  # as `RuleCache` does once it has read the rules

        def quickly(
            context: Context, panels: list[RuleSetIndex] = panels, conditions: CelConditions = conditions
        ) -> object:
            return decide_quickly(panels, ABORT, "task7", context, conditions.over(context))

        def plainly(context: Context, sets: list[RuleSet] = sets, conditions: CelConditions = conditions) -> object:
            return decide(sets, ABORT, "task7", conditions.over(context))

        arms = {"indexed": measure(asked.decisions, contexts, quickly)}
        if asked.evaluated and count <= 10_000:
            arms["evaluated"] = measure(asked.evaluated, contexts, plainly)
            for context in contexts[:50]:
                assert quickly(context) == plainly(context)
        for name, figures in arms.items():
            print(
                f"{rules:>8} {name:>10} {figures['mean']:>10.1f} {figures['p50']:>10.1f} {figures['p99']:>10.1f} {figures['cpu']:>10.1f}",
                flush=True,
            )
        beside = {"function": function(20_000, contexts), "cel_python": beside_peer(sets, contexts, 200)}
        own, peer = arms["indexed"]["cpu"], beside["cel_python"]
        print(f"{rules:>8} rules: a Python function that compares two fields takes {beside['function']:.2f} µs")
        if peer is not None:
            met = peer >= PEER * own
            reached = reached and met
            print(
                f"{rules:>8} rules: one condition by cel-python takes {peer:.0f} µs, {peer / own:.0f} whole decisions;"
                f" ≥ {PEER:g}: {'reached' if met else 'not reached'}"
            )
        held_up = asyncio.run(pause(sets, conditions, asked.added))
        print(
            f"{rules:>8} rules: adding one holds the loop up for {held_up['p50']:.2f} ms, at most {held_up['max']:.2f}; stored and taken over"
            f" in {held_up['taken_over']:.1f} ms; compiled in {compiled:.1f} s, indexed in {built:.2f} s",
            flush=True,
        )
        facts[str(count)] = {
            "rules": rules,
            "decision": arms,
            "beside": beside,
            "pause": held_up,
            "compiled": compiled,
            "indexed": built,
        }
        goal = GOALS.get(count)
        if goal is not None:
            met = arms["indexed"]["cpu"] <= goal
            reached = reached and met
            print(f"{rules:>8} rules: ≤ {goal:g} µs of CPU a decision: {'reached' if met else 'not reached'}")
        met = held_up["p50"] <= PAUSE
        reached = reached and met
        print(f"{rules:>8} rules: ≤ {PAUSE:g} ms of pause: {'reached' if met else 'not reached'}")
    facts["path"] = lengths = path(asked.turns)
    met = lengths["r2"] > STRAIGHT  # type: ignore[operator]
    reached = reached and met
    print(
        f"by the length of the path: {lengths['at_none']:.1f} µs and {lengths['per_rule']:.2f} µs a rule; R² {lengths['r2']:.4f},"
        f" > {STRAIGHT:g}: {'reached' if met else 'not reached'}"
    )
    print(f"raw figures in {keep('rules', [], facts)}", file=sys.stderr)
    leave(reached=reached)


if __name__ == "__main__":
    main()
