"""Neighbours: the other pilots of this host, whose cached files are shared by hard links.

The servers say who they are, at registration and with every heartbeat. Their areas are looked at again and again; a look at one in
which nothing happened costs one ``stat``. A neighbour whose area cannot be reached is taken as dead. The space for caches on
this host follows the number of pilots that are left.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from forestay_pilot.cache.cache_area import AreaIndex, CachedFile, digest_of, link_into, untouched

if TYPE_CHECKING:
    from forestay_pilot.cache.cache import Cache

log = logging.getLogger("forestay_pilot")

POLL_SECONDS = 1.0
_ADOPT_EVERY = 10  # looks


class _Neighbour:
    """One other pilot of this host."""

    def __init__(self, path: str) -> None:
        self.index = AreaIndex(path)
        self.held: dict[str, CachedFile] = {}  # by name
        self.contents: dict[str, int] = {}  # how many names each has


class Neighbours(threading.Thread):
    """The thread that polls the neighbours; a job that misses a file may have it poll at once."""

    def __init__(self, cache: Cache, every: float = POLL_SECONDS) -> None:
        super().__init__(name="neighbours", daemon=True)
        self._cache = cache
        self._every = every
        self._lock = threading.Lock()
        self._known: dict[str, _Neighbour] = {}  # by the path of their area
        self._dead: set[str] = set()  # listed, but unreachable
        self._ended = threading.Event()
        self._looks = 0

    def run(self) -> None:
        """Poll until told to end; no error ends this thread."""
        while not self._ended.wait(self._every):
            try:
                self.look()
                self._looks += 1
                if self._looks % _ADOPT_EVERY == 0:
                    self._cache.adopt_orphans()
                    self._cache.trim()
            except Exception:
                log.exception("unexpected error while checking the neighbours")

    def end(self) -> None:
        """Look no more."""
        self._ended.set()

    @property
    def alive(self) -> list[str]:
        """The areas of the neighbours that can be reached."""
        with self._lock:
            return sorted(self._known)

    def told(self, neighbours: object) -> None:
        """Take the servers' list of who else is on this host; anything odd in it is passed over."""
        listed = neighbours if isinstance(neighbours, list) else []
        paths = {path for neighbour in listed if (path := _path_of(neighbour)) is not None} - {self._cache.area.path}
        with self._lock:
            for path in set(self._known) - paths:
                self._drop(path)
            self._dead &= paths
            for path in paths - set(self._known):
                self._meet(path)
            self._cache.set_pilots(1 + len(self._known))

    def _meet(self, path: str) -> None:
        if not os.path.isdir(path):
            if path not in self._dead:
                log.info("a neighbour's cache cannot be reached; the neighbour is considered dead")
            self._dead.add(path)
            return
        self._dead.discard(path)
        self._known[path] = _Neighbour(path)

    def _drop(self, path: str) -> None:
        for sha256 in self._known.pop(path).contents:
            self._cache.other_went(sha256)

    def look(self) -> None:
        """Read what is new in every area, and link it."""
        with self._lock:
            fresh: list[tuple[_Neighbour, CachedFile]] = []
            for path, neighbour in list(self._known.items()):
                try:
                    fresh += [(neighbour, known) for known in self._read(neighbour)]
                except OSError:
                    log.info("a neighbour's cache can no longer be reached; the neighbour is considered dead")
                    self._drop(path)
                    self._dead.add(path)
                    self._cache.set_pilots(1 + len(self._known))
        for neighbour, known in fresh:
            if self._cache.find(known.name, known.sha256) is None:
                self._link(neighbour, known)

    def _read(self, neighbour: _Neighbour) -> list[CachedFile]:
        news = neighbour.index.news()
        if news.whole:
            for sha256 in neighbour.contents:
                self._cache.other_went(sha256)
            neighbour.held.clear()
            neighbour.contents.clear()
        fresh: dict[str, CachedFile] = {}
        for known, name in news.lines:
            before = neighbour.held.pop(name, None)
            if before is not None:
                self._count(neighbour, before, -1)
            fresh.pop(name, None)
            if known is not None:
                neighbour.held[name] = known
                self._count(neighbour, known, 1)
                if known.brought:
                    fresh[name] = known  # files that it only linked are reported by the pilot that fetched them
        return list(fresh.values())

    def _count(self, neighbour: _Neighbour, known: CachedFile, step: int) -> None:
        count = neighbour.contents.get(known.sha256, 0) + step
        if count:
            neighbour.contents[known.sha256] = count
        else:
            del neighbour.contents[known.sha256]
        if step > 0 and count == 1:
            self._cache.other_came(known.sha256, known.size)
        elif not count:
            self._cache.other_went(known.sha256)

    def _link(self, neighbour: _Neighbour, known: CachedFile) -> bool:
        place = neighbour.index.place(known.sha256)
        if not untouched(place, known.size, known.stamp):
            return False
        return self._cache.keep(known.name, place, size=known.size, sha256=known.sha256, brought=False)

    def give(self, name: str, target: str, *, sha256: str | None = None) -> CachedFile | None:
        """Look now, and link a file from a neighbour's area into a job's folder; what it is, if one had it."""
        self.look()
        with self._lock:
            having = [
                (neighbour, known)
                for neighbour in self._known.values()
                if (known := neighbour.held.get(name)) is not None
            ]
        for neighbour, known in having:
            if sha256 is not None and known.sha256 != sha256:
                continue
            place = neighbour.index.place(known.sha256)
            try:
                if not untouched(place, known.size, known.stamp):
                    continue
                if not link_into(place, target) and digest_of(target) != known.sha256:
                    os.unlink(target)
                    continue
            except OSError as error:
                log.info("a neighbour's file could not be linked: %s", error)
                continue
            return known
        return None


def _path_of(neighbour: Any) -> str | None:
    path = neighbour.get("cache") if isinstance(neighbour, dict) else None
    return path if isinstance(path, str) and os.path.isabs(path) and "\0" not in path else None
