"""The audit log as JSON: its pages as they are stored, its entries as they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from forestay.domain.exceptions.safeguards.audit import PRUNED, START, AuditEntry, AuditHead, AuditPage, Broken, check
from forestay.formats.jobs.job_public import time_millis, time_text


def page_to_json(page: AuditPage) -> dict[str, Any]:
    return {
        "tenant": page.tenant,
        "number": page.number,
        "name": page.name,
        "first": page.entries[0].number,
        "last": page.entries[-1].number,
        "entries": [entry.plain() | {"hash": entry.hash} for entry in page.entries],
    }


def page_from_json(data: Mapping[str, Any]) -> AuditPage:
    entries = tuple(AuditEntry(**entry) for entry in data["entries"])
    return AuditPage(data["tenant"], data["number"], data["name"], entries)


def entry_public(entry: AuditEntry) -> dict[str, Any]:
    return entry.plain() | {"at": time_text(entry.at), "hash": entry.hash}


class CheckedChain(NamedTuple):
    """The result of checking a chain."""

    number: int
    """The last valid entry."""
    hash: str
    broken: int | None = None
    """The first entry that was changed after it was written."""
    words: str = ""
    removed: int = 0
    """The last entry that the retention removed with all before it; 0: none."""


def check_public(shown: Iterable[Mapping[str, Any]], number: int = 0, hash_: str = START) -> CheckedChain:
    """Check displayed entries that follow an entry with the given number and hash, by computing every hash again."""
    head = AuditHead(0, number, hash_)
    for other_entry in shown:
        try:
            entry = AuditEntry(**{**other_entry, "at": time_millis(str(other_entry["at"]))})
        except (KeyError, TypeError, ValueError):
            return CheckedChain(head.number, head.hash, head.number + 1, f"entry {head.number + 1} cannot be read")
        if entry_public(entry) != other_entry:
            # A time can be written in several ways; the hash covers its value, so only our own notation is accepted.
            words = f"entry {head.number + 1} is not written as it was"
            return CheckedChain(head.number, head.hash, head.number + 1, words)
        value = check([entry], head)
        if isinstance(value, Broken):
            return CheckedChain(head.number, head.hash, value.number, value.words)
        head = value
    return CheckedChain(head.number, head.hash)


class ChainCheck:
    """Checks a chain page by page, whose beginning may have been removed by the retention.

    Entries may be missing only up to the one that a later entry names as removed, by number and hash: while a removal goes on, or after one that broke off,
    some of those before it may still be there.
    """

    def __init__(self) -> None:
        self.sound = CheckedChain(0, START)
        self._gap: CheckedChain | None = None
        """The last entry before those that are missing."""
        self._end = 0
        """The last of the missing entries."""
        self._hash = START
        """The hash of that entry, as the one after it says."""
        self._named: dict[str, Any] = {"number": 0}
        """The last entry that is named as removed."""

    def take(self, shown: Iterable[Mapping[str, Any]]) -> bool:
        """Check the next entries; False if the chain is broken there."""
        for entry in shown:
            number = entry.get("number")
            if isinstance(number, int) and number > self.sound.number + 1:
                self._gap = self.sound
                self._end, self._hash = number - 1, str(entry.get("before"))
                self.sound = CheckedChain(self._end, self._hash)
            self.sound = check_public([entry], self.sound.number, self.sound.hash)
            if self.sound.broken is not None:
                return False
            if entry.get("what") == PRUNED and int(entry["detail"].get("number", 0)) >= self._named["number"]:
                self._named = dict(entry["detail"])
        return True

    def finish(self) -> CheckedChain:
        """The result, when all entries were checked."""
        if self.sound.broken is not None or self._gap is None:
            return self.sound
        first = self._gap.number + 1
        if self._end > self._named["number"]:
            missing = (
                f"entry {first} is missing" if first == self._end else f"entries {first} to {self._end} are missing"
            )
            words = f"{missing}, and no entry says that the retention removed it"
            return self._gap._replace(broken=first, words=words)
        if self._end == self._named["number"] and self._hash != self._named.get("hash"):
            words = f"entry {self._end + 1} does not follow the one that was removed before it"
            return self._gap._replace(broken=self._end + 1, words=words)
        return self.sound._replace(removed=self._end)


def check_pruned(shown: Iterable[Mapping[str, Any]]) -> CheckedChain:
    """Check all entries of a chain that are left."""
    check_ = ChainCheck()
    check_.take(shown)
    return check_.finish()
