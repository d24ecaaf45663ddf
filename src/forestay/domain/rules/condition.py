"""A condition: its text, its limits, and the possible results.

The text is CEL over the typed context of an exception. The domain does not evaluate it: the caller that walks a tree passes `Evaluate` in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

MAX_BYTES = 4096
"""The longest text of a condition, in UTF-8. Conditions are read by people; a longer one is several rules."""
MAX_DEPTH = 32
"""How deep brackets of any kind may be nested; the parser stops there too."""
MAX_PATTERN_BYTES = 256
"""The longest pattern of `matches` that is written into a condition."""

ALWAYS = "true"
"""The condition of every root."""


class ConditionVerdict(StrEnum):
    """The result of a condition, and of a whole evaluation.

    `ERROR` is never treated as `FALSE`: a refinement that could not be evaluated would otherwise let the general rule act.
    """

    TRUE = "true"
    FALSE = "false"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Erred:
    """A condition could not be evaluated; there must be no action."""

    message: str


Evaluate = Callable[[str], "bool | Erred"]
"""Evaluates a condition's text over the context of one exception. Total: it returns errors instead of raising them."""


_OPENING = "([{"
_CLOSING = ")]}"


def check_bounds(text: str) -> tuple[str, ...]:
    """All errors of a condition's text that can be found before parsing."""
    wrong: list[str] = []
    size = len(text.encode("utf-8", "surrogatepass"))
    if not text.strip():
        wrong.append("the condition is empty")
    if size > MAX_BYTES:
        wrong.append(f"the condition has {size} bytes; at most {MAX_BYTES} are allowed")
    if any(ord(char) < 32 and char not in "\t\n\r" for char in text) or any(
        0xD800 <= ord(char) < 0xE000 for char in text
    ):
        wrong.append("the condition has invalid characters")
    depth = deepest = 0
    for char in text:
        # Brackets inside quoted texts count too: the bound is there to keep the parser from deep recursion, not to be exact.
        depth += (char in _OPENING) - (char in _CLOSING)
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        wrong.append(f"brackets are nested {deepest} deep; at most {MAX_DEPTH} are allowed")
    return tuple(wrong)
