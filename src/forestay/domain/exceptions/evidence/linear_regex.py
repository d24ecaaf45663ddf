"""Regular expressions that people write into packs and storage elements, matched by RE2.

Logs and file names are untrusted, and Python's own matcher can take for ever on a crafted text. RE2 takes time
linear in the length of the text. Therefore it supports neither lookaround nor backreferences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

LONGEST = 600

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


@lru_cache(maxsize=4096)
def compiled(expression: str) -> Any:
    """The compiled expression, with the interface of `re.Pattern`. `problem_of` must be empty for it."""
    return re2.compile(expression, _OPTIONS)


def problem_of(expression: str) -> str:
    """Why an expression cannot be used, as the end of a sentence; empty if it can."""
    if len(expression) > LONGEST:
        return f"it has more than {LONGEST} characters"
    try:
        compiled(expression)
    except re2.error as error:
        why = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        return f"it is not a valid regular expression of RE2, which has no lookaround and no backreferences: {why}"
    return ""


class ExpressionSet:
    """Many expressions that are looked for at once: literal texts that they need rule most of them out."""

    def __init__(self, expressions: Iterable[str]) -> None:
        self.names = frozenset(expressions)
        self._expressions: Sequence[str] = sorted(self.names)
        self._filter = re2.Filter()
        for expression in self._expressions:
            self._filter.Add(expression, _OPTIONS)
        if self._expressions:
            self._filter.Compile()

    def found_in(self, text: str) -> list[str]:
        """Those that match somewhere in a text."""
        if not self._expressions:
            return []
        # A lone surrogate, which JSON may contain, cannot be encoded.
        found = self._filter.Match(text.encode("utf-8", "replace"))
        return list(map(self._expressions.__getitem__, found)) if found else []
