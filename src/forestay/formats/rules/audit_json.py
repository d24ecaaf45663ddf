"""The audit log as JSON: its pages as they are stored, its entries as they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from forestay.domain.exceptions.safeguards.audit import START, AuditEntry, AuditHead, AuditPage, Broken, check
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
