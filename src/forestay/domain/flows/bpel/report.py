"""What became of each construct of a process: imported, imported with a change, or refused, with its line."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Fate(StrEnum):
    IMPORTED = "imported"
    CHANGED = "changed"
    """Imported, but it means something else here; the note says what."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    line: int
    construct: str
    fate: Fate
    note: str = ""

    def __str__(self) -> str:
        return f"{self.line}: {self.construct}: {self.fate.value}{': ' if self.note else ''}{self.note}"


@dataclass(slots=True)
class Report:
    entries: list[Entry] = field(default_factory=list)

    def add(self, line: int, construct: str, fate: Fate, note: str = "") -> None:
        self.entries.append(Entry(line, construct, fate, note))

    @property
    def fate(self) -> Fate:
        """That of the whole process."""
        found = {one.fate for one in self.entries}
        return next((one for one in (Fate.REFUSED, Fate.CHANGED) if one in found), Fate.IMPORTED)

    @property
    def refused(self) -> bool:
        return self.fate is Fate.REFUSED

    def of(self, fate: Fate) -> list[Entry]:
        return [one for one in self.entries if one.fate is fate]
