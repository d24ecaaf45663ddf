"""The peer's end: reads lines of JSON, does what they say, answers. Runs in the peer's environment, so it knows the standard library alone."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Verb = Callable[..., Any]


def answer(**verbs: Verb) -> None:
    """Until our end hangs up. What a library prints goes to the log, so that it is never taken for an answer."""
    ours = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        verb, *values = json.loads(line)
        try:
            fields = {"value": verbs[verb](*values)}
        except Exception as error:
            fields = {"error": f"{type(error).__name__}: {error}"[:2000]}
        ours.write(json.dumps(fields) + "\n")
        ours.flush()


def timed(work: Callable[[], object]) -> float:
    since = time.perf_counter()
    work()
    return time.perf_counter() - since
