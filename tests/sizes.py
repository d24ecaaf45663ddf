"""How much a test tries: a quarter in the gate, which takes the same examples every time; all of it by hand; ten times as much in `just explore`."""

from __future__ import annotations

import os

GATE = bool(os.environ.get("CI") or os.environ.get("FORESTAY_QUICK"))
EXPLORE = bool(os.environ.get("FORESTAY_EXPLORE"))


def examples(many: int) -> int:
    """How many examples, schedules or mutations a test tries, of so many by hand."""
    if GATE:
        return max(5, many // 4)
    return many * 10 if EXPLORE else many
