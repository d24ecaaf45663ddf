"""What the servers learn of a cache: with each claim request the changes since the last, or everything if a server lost it.

Each report has a version; the answer says which one the servers know. While that is the last one sent, the next report holds only
what came and went since. Any other answer (a server that was started anew, or another one) makes the pilot tell everything, in
pieces that a request can carry.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 5000  # names in one report


class CacheChanges:
    """Collects changes from any thread; one thread at a time takes a report and returns its result."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}
        self._added: dict[str, int] = {}
        self._removed: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self._sent: tuple[dict[str, int], list[str], list[str]] = ({}, [], [])
        self._version = 0
        self._base = 0  # what the servers knew when they last answered; 0 for nothing
        self.share: dict[str, str] | None = None

    def added(self, name: str, size: int) -> None:
        """A file is in the cache."""
        with self._lock:
            self._held[name] = size
            self._added[name] = size
            self._removed.pop(name, None)
            self._gone.pop(name, None)

    def removed(self, names: Iterable[str]) -> None:
        """Files are no longer in this pilot's cache."""
        with self._lock:
            for name in names:
                if self._held.pop(name, None) is not None:
                    self._added.pop(name, None)
                    self._removed[name] = None

    def gone(self, names: Iterable[str]) -> None:
        """The last link of these files on this host was deleted."""
        with self._lock:
            self._gone.update(dict.fromkeys(names))

    def request(self) -> dict[str, Any]:
        """The report to send now."""
        with self._lock:
            whole = not self._base
            if whole:
                # Reported changes are repeated; of earlier removals, only the loss of a host's last copy is new.
                self._added, self._removed = dict(self._held), {}
            added = dict(list(self._added.items())[:MOST])
            removed, gone = list(self._removed)[:MOST], list(self._gone)[:MOST]
            for name in added:
                del self._added[name]
            for name in removed:
                del self._removed[name]
            for name in gone:
                del self._gone[name]
            self._sent = (added, removed, gone)
            if whole or added or removed or gone:
                self._version += 1
            report: dict[str, Any] = {
                "version": self._version,
                "base": self._base,
                "added": [[name, size] for name, size in added.items()],
                "removed": removed,
                "gone": gone,
            }
            if whole and self.share is not None:
                report["share"] = self.share
            return report

    def answered(self, known: object) -> bool:
        """Note the version that the servers know; returns whether there is more to report at once."""
        with self._lock:
            if known == self._version:
                self._base = self._version
                self._sent = ({}, [], [])
            else:
                self._take_back()
                self._base = 0
            return bool(self._added or self._removed or self._gone) or not self._base

    def unanswered(self) -> None:
        """No answer came: the report may or may not be known, so the next one repeats it."""
        with self._lock:
            self._take_back()

    def _take_back(self) -> None:
        added, removed, gone = self._sent
        self._sent = ({}, [], [])
        for name, size in added.items():
            if name in self._held:
                self._added.setdefault(name, size)
        for name in removed:
            if name not in self._held:
                self._removed.setdefault(name)
        for name in gone:
            if name not in self._held:
                self._gone.setdefault(name)
