"""Stages inputs from the nearest source: this pilot's cache, a neighbour's, another host's of the site, then the storage element.

Pilots of a host that miss the same file at once make one transfer: the first takes a lock named after the file, the others wait for
it and then find the file in a neighbour's cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.cache.cache_peer import PeerError, fetch_peer
from forestay_pilot.clock import steady
from forestay_pilot.staging.staging import StoppedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forestay_pilot.cache.cache import Cache
    from forestay_pilot.cache.cache_neighbours import Neighbours
    from forestay_pilot.staging.staging import Fetch

log = logging.getLogger("forestay_pilot")

CACHE, NEIGHBOUR, PEER, ELEMENT = "cache", "neighbour", "peer", "element"
_LOCKS = 4096
_LOOK_SECONDS = 0.02
_COMMIT_SECONDS = 2.0  # between the servers' commit of a job and this pilot's knowing of it
_PATIENCE = 900.0  # then two transfers of one file are the lesser evil


def file_key(spec: dict[str, Any]) -> str | None:
    """The logical name under which an input is cached; none when it is unknown whether the file is still the same."""
    name = spec.get("file")
    if isinstance(name, str) and name:
        return name
    source = str(spec.get("source"))
    return source if source.startswith(("job:", "lfn:")) or spec.get("sha256") else None


class CacheStaging:
    """Brings inputs for the slots of one pilot."""

    def __init__(self, cache: Cache | None, neighbours: Neighbours | None) -> None:
        self._cache = cache
        self._neighbours = neighbours
        self.served = dict.fromkeys((CACHE, NEIGHBOUR, PEER, ELEMENT), 0)

    def bring(self, spec: dict[str, Any], target: str, fetch: Fetch, claim: str, stopped: Callable[[], bool]) -> str:
        """Bring one input to its target; gives where it came from."""
        name = file_key(spec)
        if name is None:
            fetch()
            return ELEMENT
        where = self._bring(name, spec, target, fetch, claim, stopped)
        self.served[where] += 1
        return where

    def _bring(
        self,
        name: str,
        spec: dict[str, Any],
        target: str,
        fetch: Fetch,
        claim: str,
        stopped: Callable[[], bool],
    ) -> str:
        if self._cache is None:
            return PEER if self._from_peers(name, spec, target) is not None else self._fetch(fetch)[0]
        if self._from_cache(name, spec, target, claim):
            return CACHE
        with self._flight(name, stopped):
            if self._from_cache(name, spec, target, claim):
                return CACHE  # another slot fetched it meanwhile
            began = steady()
            if self._neighbours is not None:
                known = self._neighbours.give(name, target, sha256=_digest(spec))
                if known is not None:
                    self._keep(name, target, known.size, known.sha256, claim, brought=False)
                    return NEIGHBOUR
            brought = self._from_peers(name, spec, target)
            where, (size, sha256) = (PEER, brought) if brought is not None else self._fetch(fetch)
            self._keep(name, target, size, sha256, claim, cost=max(steady() - began, 1e-3))
            return where

    @staticmethod
    def _fetch(fetch: Fetch) -> tuple[str, tuple[int, str]]:
        return ELEMENT, fetch()

    def _from_cache(self, name: str, spec: dict[str, Any], target: str, claim: str) -> bool:
        size = spec.get("bytes")
        assert self._cache is not None  # noqa: S101 - only asked with one
        self._cache.await_output(name, _COMMIT_SECONDS)
        return self._cache.give(
            name, target, claim=claim, sha256=_digest(spec), size=size if isinstance(size, int) else None
        )

    def _keep(
        self,
        name: str,
        path: str,
        size: int,
        sha256: str,
        claim: str,
        *,
        cost: float = 1.0,
        brought: bool = True,
    ) -> None:
        assert self._cache is not None  # noqa: S101 - only asked with one
        if sha256:
            self._cache.keep(name, path, size=size, sha256=sha256, claim=claim, cost=cost, brought=brought)

    def _from_peers(self, name: str, spec: dict[str, Any], target: str) -> tuple[int, str] | None:
        """From another host of the site, if the servers named one that has it and it answers."""
        for source in spec.get("from") or []:
            if not isinstance(source, dict) or source.get("kind") != "peer":
                continue
            try:
                size = spec.get("bytes")
                return fetch_peer(
                    str(source.get("url")),
                    str(source.get("ticket")),
                    name,
                    target,
                    sha256=_digest(spec),
                    size=size if isinstance(size, int) else None,
                )
            except PeerError as error:
                log.info("another host's cache did not serve %s: %s", name, error)
        return None

    @contextlib.contextmanager
    def _flight(self, name: str, stopped: Callable[[], bool]) -> Iterator[None]:
        """Be the only process on this host that fetches a file."""
        assert self._cache is not None  # noqa: S101 - only asked with one
        folder = os.path.join(self._cache.settings.folder, "flights")
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % _LOCKS
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            lock = os.open(os.path.join(folder, f"{number:03x}"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            log.warning("no lock for a transfer: %s", error)
            yield
            return
        try:
            until = steady() + _PATIENCE
            while not _taken(lock) and steady() < until:
                if stopped():
                    raise StoppedError(name)
                time.sleep(_LOOK_SECONDS)
            yield
        finally:
            os.close(lock)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _digest(spec: dict[str, Any]) -> str | None:
    digest = spec.get("sha256")
    return digest if isinstance(digest, str) and digest else None
