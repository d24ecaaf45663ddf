"""The cache of a pilot: files that jobs brought or made, kept for later jobs.

Files are kept by content and found by logical name. A job gets a hard link, read-only; the file cannot be chosen for removal while the
job has it. A payload of the same user could write to it all the same: that is noticed by size and time of change when the job
ends and before every use, and the file is dropped. The space is kept twice: by the sums of the paper, and by what the disk and
the neighbours really hold.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forestay_pilot.cache.cache_area import Area, CachedFile, digest_of, link_into, untouched
from forestay_pilot.cache.cache_policy import CacheBook, cache_size, host_cache_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forestay_pilot.cache.cache_changes import CacheChanges

log = logging.getLogger("forestay_pilot")


@dataclass(frozen=True)
class CacheSettings:
    """What a cache is started with."""

    folder: str
    space: int  # the paper's MaxSpace
    keep: int = 0  # its MinThreshold: what a running job needs
    policy: str = "lru"
    shared: bool = True  # with the other pilots of the host


@dataclass
class _CachedContent:
    """One content and the names it is known by."""

    size: int
    stamp: int
    brought: bool
    sure: bool  # its digest was computed in this pilot's life; what a dead pilot left is read once before it is used
    names: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _PendingOutput:
    """An output that waits for its job's commit."""

    path: str
    name: str
    sha256: str
    size: int


class Cache:
    """All operations may be called from any thread; the lock is never held while content is read or copied."""

    def __init__(self, settings: CacheSettings, report: CacheChanges) -> None:
        self.settings = settings
        self.area = Area(settings.folder)
        self._report = report
        self._book = CacheBook(cache_size(settings.space, settings.keep), settings.policy)
        self._lock = threading.RLock()
        self._settled = threading.Condition(self._lock)
        self._files: dict[str, _CachedContent] = {}
        self._names: dict[str, str] = {}
        self._held: dict[str, list[str]] = {}  # by claim
        self._drafts: dict[str, list[_PendingOutput]] = {}  # by claim
        self._others: dict[str, list[int]] = {}  # contents in neighbours' areas: how many have it, and its size
        self._others_bytes = 0
        self._alone_bytes = 0  # of ours that no neighbour has

    @property
    def capacity(self) -> int:
        """Bytes that may be kept now."""
        return self._book.capacity

    @property
    def used(self) -> int:
        """Bytes kept now."""
        return self._book.used

    @property
    def host_used(self) -> int:
        """Bytes that the caches of this host take together, each content counted once."""
        return self._others_bytes + self._alone_bytes

    def __len__(self) -> int:
        return len(self._files)

    def find(self, name: str, sha256: str | None = None) -> str | None:
        """The content of a name, if it is here and has the requested digest."""
        found_name = self._names.get(name)
        return found_name if sha256 is None or found_name == sha256 else None

    def holds(self, sha256: str) -> bool:
        """Whether a content is here, under any name."""
        return sha256 in self._files

    def give(self, name: str, target: str, *, claim: str, sha256: str | None = None, size: int | None = None) -> bool:
        """Link a file into a job's folder and hold it for the job; whether it was here and sound."""
        with self._lock:
            found_sha256 = self.find(name, sha256)
            if found_sha256 is None or (size is not None and self._files[found_sha256].size != size):
                return False
            file = self._files[found_sha256]
            self._book.use(found_sha256)
            self._hold(claim, found_sha256)
        if not self._sound(found_sha256, file):
            self._drop_spoiled(found_sha256, file)
            return False
        try:
            link_into(self.area.place(found_sha256), target)
        except OSError as error:
            log.warning("a cached file could not be linked into a job's folder: %s", error)
            return False
        return True

    def open(self, name: str) -> tuple[int, int, str] | None:
        """A descriptor of a cached file, with its size and digest, for a reader on another host."""
        with self._lock:
            sha256 = self._names.get(name)
            if sha256 is None:
                return None
            file = self._files[sha256]
            self._book.use(sha256)
        if not self._sound(sha256, file):
            self._drop_spoiled(sha256, file)
            return None
        try:
            return os.open(self.area.place(sha256), os.O_RDONLY | os.O_NOFOLLOW), file.size, sha256
        except OSError:
            return None

    def keep(
        self,
        name: str,
        path: str,
        *,
        size: int,
        sha256: str,
        claim: str | None = None,
        cost: float = 1.0,
        brought: bool = True,
        sure: bool = True,
    ) -> bool:
        """Take a file in, by a link to it; whether it is here now. What must go for it goes."""
        with self._lock:
            if self._names.get(name) == sha256 or (sha256 not in self._files and not self._book.fits(size)):
                if sha256 in self._files and claim is not None:
                    self._hold(claim, sha256)
                return sha256 in self._files
        try:
            draft = self.area.draft(path)
        except OSError as error:
            log.warning("a file could not be taken into the cache: %s", error)
            return False
        return self._enter(
            _PendingOutput(draft, name, sha256, size), claim=claim, cost=cost, brought=brought, sure=sure
        )

    def _enter(self, draft: _PendingOutput, *, claim: str | None, cost: float, brought: bool, sure: bool) -> bool:
        """A draft becomes a cached file, or is removed."""
        sha256, size = draft.sha256, draft.size
        try:
            with self._lock:
                if sha256 not in self._files:
                    removed = self._book.add(sha256, size, cost)
                    if removed is None:
                        return False
                    self._remove(removed)
                    if not self._make_real_room(0 if sha256 in self._others else size, newcomer=sha256):
                        self._book.discard(sha256)
                        return False
                    stamp = self.area.accept(draft.path, sha256)
                    self._files[sha256] = _CachedContent(size, stamp, brought, sure)
                    if sha256 not in self._others:
                        self._alone_bytes += size
                self._name(draft.name, sha256)
                if claim is not None:
                    self._hold(claim, sha256)
                return True
        except OSError as error:
            log.warning("a file could not be taken into the cache: %s", error)
            with self._lock:
                self._book.discard(sha256)
                self._remove([sha256])
            return False
        finally:
            with contextlib.suppress(OSError):
                os.unlink(draft.path)

    def _name(self, name: str, sha256: str) -> None:
        before = self._names.get(name)
        if before == sha256:
            return
        if before is not None:
            self._files[before].names.discard(name)
        file = self._files[sha256]
        self._names[name] = sha256
        file.names.add(name)
        self.area.note([CachedFile(name, sha256, file.size, file.stamp, file.brought)])
        self._report.added(name, file.size)

    # Outputs

    def offer(self, claim: str, job: str, folder: str, listing: Iterable[tuple[str, int, str]]) -> None:
        """Keep the outputs of a job until the servers have decided whether they count."""
        drafts = []
        for path, size, sha256 in listing:
            if not self._book.fits(size):
                continue
            with contextlib.suppress(OSError):
                draft = self.area.draft(os.path.join(folder, path))
                drafts.append(_PendingOutput(draft, f"job:{job}/{path}", sha256, size))
                if os.stat(draft).st_size != size:
                    os.unlink(draft)
                    drafts.pop()
        if drafts:
            with self._lock:
                self._drafts[claim] = drafts
                for output in drafts:
                    # The servers hear of them with the next request for work, which may go out before the commit is known
                    # here: the jobs that read them shall come to this host.
                    self._report.added(output.name, output.size)

    def settle(self, claim: str, *, committed: bool) -> None:
        """Apply the servers' answer to a completion: the job's outputs become available to all jobs, or are dropped."""
        drafts = self._drafts.get(claim, [])
        for draft in drafts:
            if not committed:
                with contextlib.suppress(OSError):
                    os.unlink(draft.path)
            if not committed or not self._enter(draft, claim=None, cost=1.0, brought=True, sure=True):
                with self._lock:
                    if draft.name not in self._names:
                        self._report.removed([draft.name])
        if drafts:
            with self._settled:
                del self._drafts[claim]
                self._settled.notify_all()

    def await_output(self, name: str, seconds: float) -> None:
        """Wait until it is settled whether a file counts that a job here has just made."""
        with self._settled:
            self._settled.wait_for(
                lambda: all(draft.name != name for drafts in self._drafts.values() for draft in drafts), seconds
            )

    # Holding and letting go

    def _hold(self, claim: str, sha256: str) -> None:
        if self._book.pin(sha256):
            self._held.setdefault(claim, []).append(sha256)

    def release(self, claim: str) -> None:
        """A job has ended: what it had may go again, unless it spoiled it; then it goes at once."""
        with self._lock:
            held = self._held.pop(claim, [])
            for sha256 in held:
                self._book.unpin(sha256)
        for sha256 in set(held):
            file = self._files.get(sha256)
            if file is not None and not untouched(self.area.place(sha256), file.size, file.stamp):
                log.warning("job of claim %s wrote to a cached file, which is dropped", claim[:8])
                self._drop_spoiled(sha256, file)
        self.trim()

    def _sound(self, sha256: str, file: _CachedContent) -> bool:
        place = self.area.place(sha256)
        if not untouched(place, file.size, file.stamp):
            return False
        if not file.sure:
            file.sure = digest_of(place) == sha256
        return file.sure

    def _drop_spoiled(self, sha256: str, file: _CachedContent) -> None:
        with self._lock:
            if self._files.get(sha256) is file:
                for held in self._held.values():
                    held[:] = [digest for digest in held if digest != sha256]
                self._book.discard(sha256)
                self._remove([sha256])

    def _remove(self, contents: Iterable[str]) -> None:
        """Remove contents dropped from the bookkeeping; the index first, so that nobody searches for them."""
        for sha256 in contents:
            names = self._forget(sha256)
            if self.area.drop(sha256):
                self._report.gone(names)

    def _forget(self, sha256: str) -> list[str]:
        file = self._files.pop(sha256, None)
        if file is None:
            return []
        names = sorted(file.names)
        for name in names:
            self._names.pop(name, None)
        if sha256 not in self._others:
            self._alone_bytes -= file.size
        with contextlib.suppress(OSError):  # a full disk: a neighbour will not find the file, and that is all
            self.area.note(names)
            self.area.tidy(self._known(), len(self._names))
        self._report.removed(names)
        return names

    def _known(self) -> Iterable[CachedFile]:
        for name, sha256 in self._names.items():
            file = self._files[sha256]
            yield CachedFile(name, sha256, file.size, file.stamp, file.brought)

    # Space

    def _make_real_room(self, size: int, newcomer: str = "") -> bool:
        """See that host and disk really have room for what comes; whether they have.

        Files that a neighbour has too free nothing when they go, so only others are chosen.
        """
        over = self.host_used + size - self._book.capacity
        short = self._shortage()
        if max(over, short) <= 0:
            return True
        self._remove(self._book.free(max(over, short), lambda key: key not in self._others and key != newcomer))
        return self._shortage() <= 0

    def _shortage(self) -> int:
        """What the disk lacks of the space that a running job needs."""
        return self.settings.keep - self.area.free_space() if self.settings.keep else 0

    def trim(self) -> None:
        """Shrink to the available space, after it was reduced or a job released files beyond the limit."""
        with self._lock:
            self._remove(self._book.resize(self._book.capacity))
            self._make_real_room(0)

    def give_back(self, size: int) -> None:
        """Free this many bytes of disk for others by removing unused files, independently of the cache's own limit."""
        with self._lock:
            short = size + self.settings.keep - self.area.free_space()
            if short > 0:
                gone = self._book.free(short, lambda key: key not in self._others)
                log.info("%d bytes of disk space are missing: %d cached files are evicted", short, len(gone))
                self._remove(gone)

    def set_pilots(self, pilots: int) -> None:
        """Follow the number of pilots on this host that share their caches."""
        size = host_cache_size(self.settings.space, pilots, self.settings.keep)
        with self._lock:
            if size != self._book.capacity:
                log.info("the cache has room for %d bytes now: %d pilots on this host", size, pilots)
                self._remove(self._book.resize(size))

    def other_came(self, sha256: str, size: int) -> None:
        """A neighbour has a file."""
        with self._lock:
            known = self._others.get(sha256)
            if known is not None:
                known[0] += 1
                return
            self._others[sha256] = [1, size]
            self._others_bytes += size
            if sha256 in self._files:
                self._alone_bytes -= size

    def other_went(self, sha256: str) -> None:
        """A neighbour no longer has a file."""
        with self._lock:
            known = self._others[sha256]
            known[0] -= 1
            if not known[0]:
                del self._others[sha256]
                self._others_bytes -= known[1]
                if sha256 in self._files:
                    self._alone_bytes += known[1]

    # Beginning and end

    def adopt_orphans(self) -> int:
        """Take over what dead pilots left beside our area, as far as there is room, and remove the rest; how many files."""
        count = 0
        for folder, held in self.area.orphans():
            for known in held:
                place = os.path.join(folder, "files", known.sha256)
                if not untouched(place, known.size, known.stamp) or self.used + known.size > self.capacity:
                    continue
                count += self.keep(known.name, place, size=known.size, sha256=known.sha256, sure=False)
            log.info("took over the cache of a dead pilot")
        return count

    def close(self) -> None:
        """The pilot ends; its area goes, and neighbours keep what they have linked."""
        self.area.close()
