"""The audit log: who did what, to what, and why, as a hash chain in which no entry can be changed unnoticed.

Each tenant has a chain of its own. An entry has a number and the hash of the entry before it; its own hash covers both. Entries are written in
*pages*, each a document that is created once under the next number: of two writers one is first, and the other takes the number after it. Therefore the
chain never forks.

A chain alone cannot show that its end was cut off. The number and hash of an entry kept elsewhere (an *anchor*) reveal that too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

START = "0" * 64
"""The hash before the first entry."""
PRUNED = "audit.prune"
"""The action of an entry by which the chain names the last entry that was removed with all before it, by number and hash."""
MAX_ENTRIES = 200
"""Entries in a page."""
MAX_TEXT = 1_000
MAX_DETAIL = 8_000
"""Characters of an entry's details as JSON; larger ones are replaced by their digest."""


@dataclass(frozen=True, slots=True)
class AuditNote:
    """A note to be added to the log."""

    by: str
    """The person, or the rule."""
    what: str
    """Such as `job.cancel`, `rule.promote` or `safeguard.stop`."""
    on: str = ""
    """The object of the action."""
    why: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry of a chain."""

    number: int
    """From 1."""
    at: int
    """Milliseconds since 1970."""
    by: str
    what: str
    on: str
    why: str
    detail: Mapping[str, Any]
    before: str
    """The hash of the entry before this one."""
    hash: str

    def plain(self) -> dict[str, Any]:
        """All that the hash covers."""
        return {
            "number": self.number,
            "at": self.at,
            "by": self.by,
            "what": self.what,
            "on": self.on,
            "why": self.why,
            "detail": dict(self.detail),
            "before": self.before,
        }


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some entries that were written at once."""

    tenant: str
    number: int
    """From 1, without gaps."""
    name: str
    """Random: by this a writer recognises its own page."""
    entries: tuple[AuditEntry, ...]


class AuditHead(NamedTuple):
    """The end of a chain: its last page and its last entry."""

    page: int = 0
    number: int = 0
    hash: str = START


@dataclass(frozen=True, slots=True)
class Broken:
    """A chain that was changed after it was written: the first entry where this shows."""

    number: int
    words: str


def head_of(page: AuditPage) -> AuditHead:
    last = page.entries[-1]
    return AuditHead(page.number, last.number, last.hash)


def next_page(head: AuditHead, notes: Sequence[AuditNote], *, tenant: str, name: str, now: int) -> AuditPage:
    """The page after a head."""
    number, before = head.number, head.hash
    entries: list[AuditEntry] = []
    for note in notes[:MAX_ENTRIES]:
        number += 1
        bare = AuditEntry(
            number, now, _cut(note.by), _cut(note.what), _cut(note.on), _cut(note.why), _small(note.detail), before, ""
        )
        entry = AuditEntry(**(bare.plain() | {"hash": hash_of(bare)}))
        entries.append(entry)
        before = entry.hash
    return AuditPage(tenant, head.page + 1, name, tuple(entries))


def hash_of(entry: AuditEntry) -> str:
    """The SHA-256 of an entry as JSON with sorted keys and no spaces, its own hash left out."""
    return hashlib.sha256(_json(entry.plain()).encode()).hexdigest()


def check(entries: Iterable[AuditEntry], head: AuditHead) -> AuditHead | Broken:
    """Check that entries continue the chain from a head; returns the new head, or where the chain breaks."""
    number, before = head.number, head.hash
    for entry in entries:
        number += 1
        if entry.number != number:
            return Broken(number, f"entry {number} is missing; entry {entry.number} is in its place")
        if hash_of(entry) != entry.hash:
            return Broken(number, f"entry {number} was changed: its content does not match its hash")
        if entry.before != before:
            return Broken(number, f"entry {number} does not follow the entry before it: one of them was replaced")
        before = entry.hash
    return AuditHead(head.page, number, before)


def _cut(text: str) -> str:
    # A lone surrogate cannot be encoded; text from a client may contain one.
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _small(detail: Mapping[str, Any]) -> Mapping[str, Any]:
    text = _json(detail).encode("utf-8", "replace").decode()
    if len(text) > MAX_DETAIL:
        return {"sha256": hashlib.sha256(text.encode()).hexdigest(), "characters": len(text)}
    plain: Mapping[str, Any] = json.loads(text)
    return plain


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
