"""The report on each construct of a process: imported, imported with a change, or refused, with its line."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class ImportStatus(StrEnum):
    IMPORTED = "imported"
    CHANGED = "changed"
    """Imported with a different meaning, which the note describes."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, order=True)
class ImportEntry:
    line: int
    construct: str
    fate: ImportStatus
    note: str = ""

    def __str__(self) -> str:
        return f"{self.line}: {self.construct}: {self.fate.value}{': ' if self.note else ''}{self.note}"


@dataclass(slots=True)
class ImportReport:
    entries: list[ImportEntry] = field(default_factory=list)

    def add(self, line: int, construct: str, fate: ImportStatus, note: str = "") -> None:
        self.entries.append(ImportEntry(line, construct, fate, note))

    @property
    def fate(self) -> ImportStatus:
        """The result for the whole process."""
        statuses = {entry.fate for entry in self.entries}
        return next(
            (status for status in (ImportStatus.REFUSED, ImportStatus.CHANGED) if status in statuses),
            ImportStatus.IMPORTED,
        )

    @property
    def refused(self) -> bool:
        return self.fate is ImportStatus.REFUSED

    def of(self, fate: ImportStatus) -> list[ImportEntry]:
        return [entry for entry in self.entries if entry.fate is fate]
