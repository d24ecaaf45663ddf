"""The process in which untrusted expressions are evaluated: `python -m forestay.adapters.cel.sandboxed`.

The first process loads the library once and evaluates nothing itself: it forks. The fork answers request by request until one exceeds
the limits: the kernel ends it at 250 ms of CPU (a profiling timer, so a busy machine makes no difference), or at 64 MiB more than at its
start. Then the first process reports that in place of the answer and forks again, which takes milliseconds instead of the half second of a start.

A request and an answer are one line of JSON each.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any

from forestay.adapters.cel.conditions import CelConditions
from forestay.domain.rules.condition import Erred, Evaluate
from forestay.domain.rules.context import read_context, worst_context

CPU = 0.25
MEMORY = 64 << 20


def main() -> None:
    conditions = CelConditions()
    worst = worst_context()
    # Whatever handler the parent had, Ctrl-C is for the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        child = os.fork()
        if child == 0:
            _serve(conditions, conditions.over(worst))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return
        _write({"died": _why(status)})


def _why(status: int) -> str:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        return f"it takes more than {CPU * 1000:.0f} ms"
    return f"it needs more than {MEMORY >> 20} MiB"


def _serve(conditions: CelConditions, at_bounds: Evaluate) -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, CPU)
        answer = _try(conditions, request, at_bounds)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write({"id": request["id"], **answer})


def _try(conditions: CelConditions, request: Mapping[str, Any], at_bounds: Evaluate) -> dict[str, Any]:
    text = request["text"]
    problems = conditions.compile(text)
    if problems:
        return {"problems": problems}
    worst = _spared(at_bounds(text))
    if isinstance(worst, Erred) and "budget" in worst.message:
        return {"problems": [(0, 0, "with lists of maximum length it exceeds the iteration limit")]}
    answers: list[Any] = []
    for context in request["contexts"]:
        answer = _spared(conditions.over(read_context(context)[0])(text))
        answers.append({"erred": answer.message} if isinstance(answer, Erred) else answer)
    return {"problems": [], "answers": answers}


def _spared(answer: bool | Erred) -> bool | Erred:  # noqa: FBT001
    """The answer, if there was memory enough for it."""
    if isinstance(answer, Erred) and "bad_alloc" in answer.message:
        os._exit(1)
    return answer


def _write(answer: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
