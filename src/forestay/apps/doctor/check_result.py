"""The result of one of the doctor's checks."""

from __future__ import annotations

from dataclasses import dataclass

GOOD, MISSING, NOTE = "good", "missing", "note"
MARKS = {GOOD: "ok", MISSING: "MISSING", NOTE: "note"}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    about: str
    state: str
    words: str
    remedy: str = ""
