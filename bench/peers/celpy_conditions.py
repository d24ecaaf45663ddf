"""Conditions by cel-python: compiled once, a context handed over once for all texts that are asked of it."""

from __future__ import annotations

import time
from typing import Any

import celpy

from bench.peers.answering import answer

compiled: list[Any] = []
contexts: list[Any] = []
PER_CONTEXT = 0


def load(texts: list[str], arguments: list[Any], each: int) -> None:
    """The texts, the contexts, and how many texts are asked of each context: those from its own place on."""
    global PER_CONTEXT
    environment = celpy.Environment()
    compiled[:] = [environment.program(environment.compile(text)) for text in texts]
    contexts[:] = arguments
    PER_CONTEXT = each


def evaluate() -> dict[str, Any]:
    """Processor time in microseconds an evaluation, and what came out."""
    results: list[bool | None] = []
    began = time.process_time()
    for place, context in enumerate(contexts):
        activation = celpy.json_to_cel(context)
        for number in range(PER_CONTEXT):
            try:
                results.append(bool(compiled[(place + number) % len(compiled)].evaluate(activation)))
            except celpy.CELEvalError:
                results.append(None)
    spent = time.process_time() - began
    return {"cpu": 1e6 * spent / len(results), "found": results}


if __name__ == "__main__":
    answer(load=load, evaluate=evaluate)
