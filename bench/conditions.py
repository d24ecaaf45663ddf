"""One condition in CEL: ours beside cel-python, on the same texts and contexts.

    just bench conditions

Each context is handed over once and ten texts are asked of it, as a decision does. Processor time is compared, in turns. Where both answer, the
answers are the same; cel-python errs where a number is compared with null, which is counted. `just bench rules` is the whole decision.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from typing import Any

from bench.harness import keep, leave, paired
from bench.peers.peer import Peer
from bench.rules import condition
from forestay.adapters.cel.conditions import CelConditions
from forestay.domain.rules.context import FIELDS, Context, read_context

GOAL = 300.0
EACH = 10


def nested(context: Context) -> dict[str, Any]:
    """A context as cel-python takes it: `job.name` is the field `name` of `job`."""
    fields: dict[str, Any] = {}
    for field in FIELDS:
        place, value = fields, context.get(field.name)
        *above, last = field.name.split(".")
        for word in above:
            place = place.setdefault(word, {})
        place[last] = value
    return json.loads(json.dumps(fields, default=list))  # type: ignore[no-any-return]


def ours(texts: list[str], contexts: list[Context], conditions: CelConditions) -> tuple[float, list[bool | None]]:
    answers: list[bool | None] = []
    began = time.process_time()
    for place, context in enumerate(contexts):
        evaluate = conditions.over(context)
        for number in range(EACH):
            answer = evaluate(texts[(place + number) % len(texts)])
            answers.append(answer if isinstance(answer, bool) else None)
    return 1e6 * (time.process_time() - began) / len(answers), answers


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    chance = random.Random(7)
    made = [condition(chance, 1000) for _ in range(asked.texts)]
    texts, contexts = [text for text, _ in made], [read_context(record)[0] for _, record in made]
    conditions = CelConditions()
    assert not any(conditions.compile(text) for text in texts)
    spent: dict[str, list[float]] = {"forestay": [], "cel-python": []}
    erred: dict[str, int] = {}
    with Peer("celpy", "celpy_conditions") as peer:
        peer.ask("load", texts, [nested(context) for context in contexts], EACH)
        peer.ask("evaluate")
        ours(texts, contexts, conditions)  # warm, both
        for _ in range(asked.rounds):
            theirs = peer.ask("evaluate")
            cpu, results = ours(texts, contexts, conditions)
            pairs = list(zip(results, theirs["found"], strict=True))
            differing = sum(None not in pair and pair[0] != pair[1] for pair in pairs)
            assert not differing, f"{differing} of {len(results)} answers differ"
            erred = {name: sum(pair[place] is None for pair in pairs) for place, name in enumerate(spent)}
            spent["forestay"].append(cpu)
            spent["cel-python"].append(theirs["cpu"])
    ratio = paired(spent["cel-python"], spent["forestay"])
    middle = {name: statistics.median(each) for name, each in spent.items()}
    figures = {
        "evaluations": asked.texts * EACH,
        "erred": erred,
        "CPU µs": spent,
    }
    print(f"raw runs in {keep('conditions', [], figures)}", file=sys.stderr)
    reached = ratio.low >= GOAL
    print(
        f"conditions: {middle['forestay']:.2f} µs of CPU each, cel-python {middle['cel-python']:.0f}: {ratio} × "
        f"(goal ≥ {GOAL:g}): {'reached' if reached else 'not reached'}"
    )
    leave(reached=reached)


if __name__ == "__main__":
    main()
