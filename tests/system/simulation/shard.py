"""One replicated shard of the simulated store: a primary, a replica, and sometimes an old primary that does not know it.

As in OpenSearch a write is first applied on the primary, where a read can see it, and acknowledged only when the replica
has it too. What the replica has is *committed*: it survives every failover. What only a primary had when it died or was cut off
is rolled back, although someone may have read it. A new primary raises the term and goes on counting where the replica stood, so a
sequence number may be given twice, in two terms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Generic, TypeVar

from forestay.ports.jobs.job_store import Version

Value = TypeVar("Value")
ANYWAY = Version(-1, -1)
"""Expected version of a write that is not checked."""
REFRESH = 1.0


class Entry(Generic[Value]):
    """One writing of one document."""

    __slots__ = ("committed", "fields", "read_dirty", "value", "version")

    def __init__(self, value: Value, version: Version) -> None:
        self.value = value
        self.version = version
        self.committed = False
        self.read_dirty = False
        self.fields: dict[str, Any] | None = None
        """What searches look at; made when first needed."""


class Copy(Generic[Value]):
    """One copy of the shard, with what its searches show."""

    def __init__(self, term: int) -> None:
        self.term = term
        self.highest = 0
        self.documents: dict[str, Entry[Value]] = {}
        self.shown: dict[str, Entry[Value]] = {}
        self.unshown: list[tuple[float, str, Entry[Value]]] = []
        self.unsafe: list[tuple[str, Entry[Value]]] = []
        """Applied here and not yet known to be committed."""

    def put(self, name: str, entry: Entry[Value], now: float) -> None:
        self.documents[name] = entry
        self.highest = max(self.highest, entry.version.number)
        self.unshown.append((now, name, entry))

    def show(self, up_to: float) -> Mapping[str, Entry[Value]]:
        """What a search sees: everything that was there at the last refresh."""
        while self.unshown and self.unshown[0][0] <= up_to:
            _, name, entry = self.unshown.pop(0)
            self.shown[name] = entry
        return self.shown

    def twin(self) -> Copy[Value]:
        other: Copy[Value] = Copy(self.term)
        other.highest = self.highest
        other.documents = dict(self.documents)
        other.shown = dict(self.documents)
        return other


class Shard(Generic[Value]):
    """The shard; `committed` is told of every writing that can no longer be lost, in order."""

    def __init__(
        self,
        name: str,
        rng: Random,
        tally: Counter[str],
        committed: Callable[[str, Entry[Value] | None, Entry[Value]], None],
        *,
        number_only: bool = False,
    ) -> None:
        self.name = name
        self.rng = rng
        self.tally = tally
        self.told = committed
        self.number_only = number_only
        self.primary: Copy[Value] = Copy(1)
        self.replica: Copy[Value] | None = Copy(1)
        self.old: Copy[Value] | None = None
        """A primary that was cut off and replaced, and still answers whoever asks it."""
        self.cut = False
        """The primary is cut off from the replica: it applies writes that nobody will ever acknowledge."""
        self.down = False
        self.truth: dict[str, Entry[Value]] = {}

    # -- requests ----------------------------------------------------------------------------------------------

    def copy_for_write(self) -> Copy[Value]:
        if self.old is not None and self.rng.random() < 0.4:
            return self.old
        return self.primary

    def copy_for_read(self) -> Copy[Value]:
        if self.old is not None and self.rng.random() < 0.5:
            return self.old
        if self.replica is not None and self.rng.random() < 0.4:
            return self.replica
        return self.primary

    def apply(
        self, copy: Copy[Value], name: str, value: Value, expected: Version | None, now: float
    ) -> Entry[Value] | None:
        """Apply a write on a primary; None if the version does not match."""
        current = copy.documents.get(name)
        if expected is None:
            if current is not None:
                return None
        elif expected is not ANYWAY and (current is None or not self._same(current.version, expected)):
            return None
        entry = Entry(value, Version(copy.highest + 1, copy.term))
        copy.put(name, entry, now)
        if copy is self.primary and self.replica is None and not self.cut:
            self._commit(name, entry)
        else:
            copy.unsafe.append((name, entry))
        return entry

    def _same(self, current: Version, expected: Version) -> bool:
        return current.number == expected.number if self.number_only else current == expected

    def replicate(self, name: str, entry: Entry[Value], now: float) -> bool:
        """The write reaches the replica, unless the world has changed meanwhile; says whether it is committed."""
        if entry.committed:
            return True
        if self.cut or entry.version.term != self.primary.term or self.primary.documents.get(name) is None:
            return False
        if self.replica is not None:
            self.replica.put(name, entry, now)
        self._commit(name, entry)
        return True

    def get(self, name: str) -> Entry[Value] | None:
        entry = self.copy_for_read().documents.get(name)
        if entry is not None and not entry.committed:
            entry.read_dirty = True
        truth = self.truth.get(name)
        if truth is not None and (entry is None or _order(entry) < _order(truth)):
            self.tally["stale read"] += 1
        return entry

    def search(self, now: float) -> Mapping[str, Entry[Value]]:
        return self.copy_for_read().show(now - now % REFRESH)

    def refresh(self, now: float) -> None:
        for copy in (self.primary, self.replica, self.old):
            if copy is not None:
                copy.show(now)

    def _commit(self, name: str, entry: Entry[Value]) -> None:
        entry.committed = True
        before = self.truth.get(name)
        self.truth[name] = entry
        self.told(name, before, entry)

    # -- faults ------------------------------------------------------------------------------------------------

    def cut_off(self) -> bool:
        """The primary loses its replica without noticing."""
        if self.replica is None or self.cut or self.down:
            return False
        self.cut = True
        return True

    def promote(self, *, keep_old: bool) -> None:
        """The replica becomes the primary of a new term; the old one is dead, or goes on unaware."""
        if self.replica is None:
            self.cut = False
            return
        fallen = self.primary
        self.primary, self.replica = self.replica, None
        self.primary.term = fallen.term + 1
        self.cut = False
        self.tally["failover"] += 1
        if keep_old:
            self.old = fallen
            self.tally["stale primary"] += 1
        else:
            self._roll_back(fallen)

    def heal(self, now: float) -> None:
        """The old primary learns the truth, and the replica is rebuilt."""
        if self.old is not None:
            self._roll_back(self.old)
            self.old = None
        if self.cut:
            # The line came back before anyone was promoted: what was applied meanwhile is replicated now.
            self.cut = False
            for name, entry in self.primary.unsafe:
                self.replicate(name, entry, now)
            self.primary.unsafe.clear()
        if self.replica is None:
            self.replica = self.primary.twin()

    def _roll_back(self, fallen: Copy[Value]) -> None:
        for _, entry in fallen.unsafe:
            if not entry.committed:
                self.tally["rolled back"] += 1
                self.tally["dirty read"] += entry.read_dirty


def _order(entry: Entry[Any]) -> tuple[int, int]:
    return (entry.version.term, entry.version.number)
